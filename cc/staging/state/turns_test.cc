#include "cc/staging/state/turns.h"

#include <gtest/gtest.h>

#include "cc/staging/state/testing/group_under_test.h"

namespace byteps {
namespace {

TEST(TurnsTest, PlacesInTheOrderOfTheCalls) {
  Turns turns;
  const TensorPointer a = GroupUnderTest::NewTensor("a");
  const TensorPointer b = GroupUnderTest::NewTensor("b");
  EXPECT_FALSE(turns.has_waiting());
  turns.Add(a);
  turns.Add(b);
  EXPECT_TRUE(turns.has_waiting());
  EXPECT_TRUE(a->has_turn);
  ASSERT_TRUE(turns.Begin());
  EXPECT_EQ(turns.Next(), a);
  EXPECT_EQ(turns.Next(), b);
  EXPECT_EQ(turns.Next(), nullptr);
  EXPECT_FALSE(turns.has_waiting());
}

TEST(TurnsTest, OneOfANameInFlightHoldsUpTheNextAndWhatIsBehindIt) {
  Turns turns;
  const TensorPointer first = GroupUnderTest::NewTensor("a");
  const TensorPointer second = GroupUnderTest::NewTensor("a");
  const TensorPointer other = GroupUnderTest::NewTensor("b");
  for (const TensorPointer& tensor : {first, second, other}) turns.Add(tensor);
  ASSERT_TRUE(turns.Begin());
  EXPECT_EQ(turns.Next(), first);
  EXPECT_EQ(turns.Next(), nullptr);
  ASSERT_TRUE(turns.Begin());
  EXPECT_EQ(turns.Next(), nullptr);
  turns.End(*first);
  ASSERT_TRUE(turns.Begin());
  EXPECT_EQ(turns.Next(), second);
  EXPECT_EQ(turns.Next(), other);
}

TEST(TurnsTest, OneThreadPlacesAtATime) {
  Turns turns;
  const TensorPointer tensor = GroupUnderTest::NewTensor("a");
  turns.Add(tensor);
  EXPECT_TRUE(turns.Begin());
  EXPECT_FALSE(turns.Begin());
  EXPECT_EQ(turns.Next(), tensor);
  EXPECT_FALSE(turns.Begin());
  // What has come meanwhile is placed by the same thread.
  const TensorPointer later = GroupUnderTest::NewTensor("b");
  turns.Add(later);
  EXPECT_FALSE(turns.Begin());
  EXPECT_EQ(turns.Next(), later);
  EXPECT_EQ(turns.Next(), nullptr);
  EXPECT_TRUE(turns.Begin());
}

}  // namespace
}  // namespace byteps

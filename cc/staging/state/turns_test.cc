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
  EXPECT_EQ(turns.Next().value().tensor, a);
  EXPECT_EQ(turns.Next().value().tensor, b);
  EXPECT_FALSE(turns.Next().has_value());
  EXPECT_FALSE(turns.has_waiting());
}

TEST(TurnsTest, OneOfANameInFlightHoldsUpTheNextAndWhatIsBehindIt) {
  Turns turns;
  const TensorPointer first = GroupUnderTest::NewTensor("a");
  const TensorPointer second = GroupUnderTest::NewTensor("a");
  const TensorPointer other = GroupUnderTest::NewTensor("b");
  for (const TensorPointer& tensor : {first, second, other}) turns.Add(tensor);
  ASSERT_TRUE(turns.Begin());
  EXPECT_EQ(turns.Next().value().tensor, first);
  EXPECT_FALSE(turns.Next().has_value());
  ASSERT_TRUE(turns.Begin());
  EXPECT_FALSE(turns.Next().has_value());
  turns.End(*first);
  ASSERT_TRUE(turns.Begin());
  EXPECT_EQ(turns.Next().value().tensor, second);
  EXPECT_EQ(turns.Next().value().tensor, other);
}

TEST(TurnsTest, OneThreadPlacesAtATime) {
  Turns turns;
  const TensorPointer tensor = GroupUnderTest::NewTensor("a");
  turns.Add(tensor);
  EXPECT_TRUE(turns.Begin());
  EXPECT_FALSE(turns.Begin());
  EXPECT_EQ(turns.Next().value().tensor, tensor);
  EXPECT_FALSE(turns.Begin());
  // What has come meanwhile is placed by the same thread.
  const TensorPointer later = GroupUnderTest::NewTensor("b");
  turns.Add(later);
  EXPECT_FALSE(turns.Begin());
  EXPECT_EQ(turns.Next().value().tensor, later);
  EXPECT_FALSE(turns.Next().has_value());
  EXPECT_TRUE(turns.Begin());
}

TEST(TurnsTest, ARoundIsGivenUpAfterThoseThatWait) {
  Turns turns;
  EXPECT_FALSE(turns.AddGivenUp("a", "refused"));
  const TensorPointer first = GroupUnderTest::NewTensor("a");
  const TensorPointer second = GroupUnderTest::NewTensor("a");
  turns.Add(first);
  EXPECT_FALSE(turns.AddGivenUp("b", "refused"));
  EXPECT_TRUE(turns.AddGivenUp("a", "refused"));
  turns.Add(second);
  ASSERT_TRUE(turns.Begin());
  EXPECT_EQ(turns.Next().value().tensor, first);
  // A thread may still be handing it to the worker.
  EXPECT_TRUE(turns.AddGivenUp("a", "refused again"));
  const Turn given_up = turns.Next().value();
  EXPECT_EQ(given_up.tensor, nullptr);
  EXPECT_EQ(given_up.name, "a");
  EXPECT_EQ(given_up.reason, "refused");
  EXPECT_FALSE(turns.Next().has_value());
  turns.End(*first);
  ASSERT_TRUE(turns.Begin());
  EXPECT_EQ(turns.Next().value().tensor, second);
  EXPECT_EQ(turns.Next().value().reason, "refused again");
  EXPECT_FALSE(turns.Next().has_value());
  EXPECT_FALSE(turns.AddGivenUp("a", "refused"));
}

}  // namespace
}  // namespace byteps

#include "cc/coordinator/state/absences.h"

#include <gtest/gtest.h>

#include "cc/base/seconds.h"
#include "cc/wire/handshake.h"

namespace byteps {
namespace {

const Endpoint kListensAt{"10.0.0.1", 77};
constexpr int64_t kBegin = 1000;

TEST(AbsencesTest, NobodyIsLookedForWhileAllAreThere) {
  Absences absences;
  EXPECT_FALSE(absences.NextLookNanos().has_value());
  absences.Add(3, kListensAt, kBegin);
  EXPECT_TRUE(absences.NextLookNanos().has_value());
  absences.Remove(3);
  EXPECT_FALSE(absences.NextLookNanos().has_value());
}

TEST(AbsencesTest, WhoIsRefusedIsGivenUpAtOnce) {
  Absences absences;
  absences.Add(3, kListensAt, kBegin);
  const Absences::Look look = absences.BeginLook();
  EXPECT_EQ(look.peer, 3u);
  EXPECT_FALSE(look.is_last);
  EXPECT_EQ(absences.EndLook(look, true), "nobody listens at 10.0.0.1:77 any more");
  EXPECT_FALSE(absences.NextLookNanos().has_value());
}

TEST(AbsencesTest, WhoDoesNotComeBackInTimeIsGivenUpAfterLooksThatGetRarer) {
  Absences absences;
  absences.Add(3, Endpoint(), kBegin);
  int64_t last_ns = kBegin, last_pause_ns = 0;
  std::string why;
  int looks = 0;
  for (; why.empty(); ++looks) {
    ASSERT_TRUE(absences.NextLookNanos().has_value());
    const int64_t due_ns = *absences.NextLookNanos();
    EXPECT_GT(due_ns - last_ns, last_pause_ns) << looks;
    last_pause_ns = due_ns - last_ns;
    last_ns = due_ns;
    why = absences.EndLook(absences.BeginLook(), false);
  }
  EXPECT_EQ(looks, 6);
  EXPECT_EQ(last_ns, kBegin + SecondsToNanos(kReconnectSeconds));
  EXPECT_EQ(why.rfind("it did not come back within", 0), 0u) << why;
}

TEST(AbsencesTest, WhoComesWhileSomebodyLooksIsNotGivenUp) {
  Absences absences;
  absences.Add(3, kListensAt, kBegin);
  const Absences::Look look = absences.BeginLook();
  absences.Remove(3);
  EXPECT_EQ(absences.EndLook(look, true), "");
  absences.Add(3, kListensAt, kBegin + 5);
  EXPECT_EQ(absences.EndLook(look, true), "") << "of the absence before";
  EXPECT_EQ(*absences.NextLookNanos(), kBegin + 5 + SecondsToNanos(0.02));
}

TEST(AbsencesTest, WhoIsDueFirstIsLookedForFirst) {
  Absences absences;
  absences.Add(3, kListensAt, kBegin);
  absences.Add(2, kListensAt, kBegin + 1);
  EXPECT_EQ(absences.BeginLook().peer, 3u);
  absences.EndLook(absences.BeginLook(), false);
  EXPECT_EQ(absences.BeginLook().peer, 2u);
}

}  // namespace
}  // namespace byteps

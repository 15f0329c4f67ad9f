#include "cc/base/backoff.h"

#include <gtest/gtest.h>

#include <set>

namespace byteps {
namespace {

TEST(BackoffTest, GrowsToItsLimit) {
  Backoff backoff(1000, 4000);
  for (const int64_t mean : {1000, 1500, 2250, 3375, 4000, 4000, 4000}) {
    const int64_t pause = backoff.NextNanos();
    EXPECT_GE(pause, mean / 2);
    EXPECT_LE(pause, mean + mean / 2);
  }
}

TEST(BackoffTest, ThoseWhoBeginTogetherComeBackApart) {
  std::set<int64_t> pauses;
  for (int i = 0; i < 100; ++i) pauses.insert(Backoff(1000000, 1000000).NextNanos());
  EXPECT_GT(pauses.size(), 90u);
}

}  // namespace
}  // namespace byteps

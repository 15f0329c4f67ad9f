#include "cc/worker/state/straggler_watch.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <vector>

namespace byteps {
namespace {

constexpr int64_t kMs = 1000000;

class StragglerWatchTest : public ::testing::Test {
 protected:
  // Three seconds with 20 steps of 100 ms, in which each worker's parts came so late.
  std::optional<Straggler> Look(std::initializer_list<int64_t> lags_ms, uint64_t steps = 20) {
    lags_.resize(lags_ms.size());
    size_t rank = 0;
    for (const int64_t lag_ms : lags_ms) {
      WorkerLag& lag = lags_[rank++];
      lag.contributions += 5;
      lag.total_ns += static_cast<uint64_t>(5 * lag_ms * kMs);
    }
    steps_.steps += steps;
    steps_.step_ns += static_cast<int64_t>(steps) * 100 * kMs;
    now_ += 3000 * kMs;
    if (!watch_.IsDue(steps_, now_)) return std::nullopt;
    return watch_.Look(lags_, steps_, now_);
  }

  StragglerWatch watch_;
  std::vector<WorkerLag> lags_;
  StepCounters steps_;
  int64_t now_ = 1;
};

TEST_F(StragglerWatchTest, OneThatStaysLateIsNamedOnce) {
  EXPECT_FALSE(Look({0, 40, 900}).has_value());  // the first steps are traced and compiled
  EXPECT_FALSE(Look({0, 40, 1}).has_value());
  EXPECT_FALSE(Look({0, 30, 1}).has_value());
  const std::optional<Straggler> found = Look({0, 50, 1});
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->rank, 1);
  EXPECT_EQ(found->lag_ns, 50 * kMs);
  EXPECT_EQ(found->step_ns, 100 * kMs);
  for (int look = 0; look < 5; ++look) EXPECT_FALSE(Look({0, 50, 1}).has_value());
}

TEST_F(StragglerWatchTest, AndAgainWhenItWasNotMeanwhile) {
  for (int look = 0; look < 4; ++look) EXPECT_EQ(Look({0, 50}).has_value(), look == 3);
  EXPECT_FALSE(Look({0, 1}).has_value());
  for (int look = 0; look < 3; ++look) EXPECT_EQ(Look({0, 50}).has_value(), look == 2);
}

TEST_F(StragglerWatchTest, WorkersThatAreLateInTurnsAreNotNamed) {
  for (int look = 0; look < 9; ++look)
    EXPECT_FALSE((look % 2 == 0 ? Look({0, 50}) : Look({50, 0})).has_value());
}

TEST_F(StragglerWatchTest, FewMillisecondsAndSmallSharesAreNoMatter) {
  for (int look = 0; look < 9; ++look) EXPECT_FALSE(Look({0, 24}).has_value());
}

TEST_F(StragglerWatchTest, FewStepsSayNothing) {
  for (int look = 0; look < 5; ++look) EXPECT_FALSE(Look({0, 50}, 1).has_value());
}

TEST_F(StragglerWatchTest, BeforeTheServersHaveReportedNobodyIsNamed) {
  for (int look = 0; look < 5; ++look) EXPECT_FALSE(Look({}).has_value());
}

}  // namespace
}  // namespace byteps

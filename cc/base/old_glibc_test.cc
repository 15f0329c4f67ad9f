#include "cc/base/old_glibc.h"

#include <errno.h>
#include <gtest/gtest.h>

#include <thread>

#include "cc/base/clock.h"

namespace byteps {
namespace {

using Wait = decltype(&CondWaitInSlices);

timespec After(double seconds) {
  const int64_t nanos = MonotonicNanos() + SecondsToNanos(seconds);
  return {nanos / 1000000000, nanos % 1000000000};
}

class OldGlibcTest : public testing::TestWithParam<Wait> {
 protected:
  // Waits as std::condition_variable does: until it is time, or `woken_`.
  bool WaitUntil(const timespec& until) {
    pthread_mutex_lock(&mutex_);
    int result = 0;
    while (!woken_ && result == 0) {
      result = GetParam()(&condition_, &mutex_, CLOCK_MONOTONIC, &until);
      ++calls_;
    }
    EXPECT_TRUE(result == 0 || result == ETIMEDOUT) << result;
    const bool woken = woken_;
    pthread_mutex_unlock(&mutex_);
    return woken;
  }

  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t condition_ = PTHREAD_COND_INITIALIZER;
  bool woken_ = false;
  int calls_ = 0;
};

TEST_P(OldGlibcTest, WaitsUntilTheTime) {
  const int64_t begin = MonotonicNanos();
  EXPECT_FALSE(WaitUntil(After(1.2)));
  EXPECT_GE(MonotonicNanos() - begin, SecondsToNanos(1.2));
}

TEST_P(OldGlibcTest, DoesNotWaitForATimeThatHasPassed) {
  EXPECT_FALSE(WaitUntil(After(-5)));
  EXPECT_EQ(calls_, 1);
}

TEST_P(OldGlibcTest, IsWoken) {
  std::thread waker([this] {
    pthread_mutex_lock(&mutex_);
    woken_ = true;
    pthread_cond_signal(&condition_);
    pthread_mutex_unlock(&mutex_);
  });
  EXPECT_TRUE(WaitUntil(After(600)));
  waker.join();
}

INSTANTIATE_TEST_SUITE_P(Waits, OldGlibcTest,
                         testing::Values(&CondWaitInSlices, &byteps_cond_clockwait));

}  // namespace
}  // namespace byteps

// Backoff: how long to wait before the next attempt: longer each time, and not as long as others
// who began at the same moment, so that they do not all come back at once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>

#include "cc/base/schedule.h"

namespace byteps {

class Backoff {
 public:
  // Nanoseconds of the first pause and of the longest, on average.
  Backoff(int64_t first_ns, int64_t most_ns)
      : mean_ns_(first_ns), most_ns_(most_ns), random_(Seed()) {}

  // Between half of the mean and one and a half; the mean grows by half each time.
  int64_t NextNanos() {
    const int64_t mean = mean_ns_;
    mean_ns_ = std::min(most_ns_, mean_ns_ + mean_ns_ / 2);
    return std::uniform_int_distribution<int64_t>(mean / 2, mean + mean / 2)(random_);
  }

 private:
  static uint32_t Seed() {
    Schedule* const schedule = CurrentSchedule();
    return schedule != nullptr ? schedule->Random() : std::random_device()();
  }

  int64_t mean_ns_;
  const int64_t most_ns_;
  std::minstd_rand random_;
};

}  // namespace byteps

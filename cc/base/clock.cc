#include "cc/base/clock.h"

#include <pthread.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "cc/base/schedule.h"

namespace byteps {
namespace {

std::atomic<int64_t> wall_shift{0};

int64_t Read(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

}  // namespace

int64_t MonotonicNanos() {
  if (Schedule* const schedule = CurrentSchedule()) return schedule->NowNanos();
  return Read(CLOCK_MONOTONIC);
}

void SleepFor(int64_t nanoseconds) {
  Schedule* const schedule = CurrentSchedule();
  if (schedule == nullptr)
    return std::this_thread::sleep_for(std::chrono::nanoseconds(nanoseconds));
  const int64_t until_ns = schedule->NowNanos() + nanoseconds;
  while (schedule->NowNanos() < until_ns) schedule->Wait(nullptr, until_ns);
}

int64_t WallNanos() {
  if (Schedule* const schedule = CurrentSchedule()) return schedule->NowNanos();
  return Read(CLOCK_REALTIME) + wall_shift.load(std::memory_order_relaxed);
}

void ShiftWallClock(int64_t nanoseconds) { wall_shift = nanoseconds; }

void SetThreadName(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

}  // namespace byteps

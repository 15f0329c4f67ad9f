#include "cc/base/clock.h"

#include <pthread.h>
#include <time.h>

namespace byteps {
namespace {

int64_t Read(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1000000000 + now.tv_nsec;
}

}  // namespace

int64_t MonotonicNanos() { return Read(CLOCK_MONOTONIC); }

int64_t WallNanos() { return Read(CLOCK_REALTIME); }

void SetThreadName(const std::string& name) {
  pthread_setname_np(pthread_self(), name.substr(0, 15).c_str());
}

}  // namespace byteps

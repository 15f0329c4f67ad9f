#include "cc/base/old_glibc.h"

#include <dlfcn.h>
#include <errno.h>

#include <algorithm>

namespace byteps {
namespace {

constexpr int64_t kSecond = 1000000000;

int64_t NanosOf(const timespec& time) { return time.tv_sec * kSecond + time.tv_nsec; }

int64_t NowOf(clockid_t clock) {
  timespec now;
  clock_gettime(clock, &now);
  return NanosOf(now);
}

}  // namespace

int CondWaitInSlices(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                     const timespec* until) {
  const int64_t left = NanosOf(*until) - NowOf(clock);
  if (left <= 0) return ETIMEDOUT;
  const int64_t wake = NowOf(CLOCK_REALTIME) + std::min(left, kSecond);
  const timespec slice = {wake / kSecond, wake % kSecond};
  const int result = pthread_cond_timedwait(condition, mutex, &slice);
  // The caller looks at its clock. A second slice here could miss what happened between the two.
  return result == ETIMEDOUT && NanosOf(*until) > NowOf(clock) ? 0 : result;
}

}  // namespace byteps

extern "C" int byteps_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                     clockid_t clock, const timespec* until) {
  static const auto system_wait = reinterpret_cast<decltype(&byteps::CondWaitInSlices)>(
      dlsym(RTLD_DEFAULT, "pthread_cond_clockwait"));
  return (system_wait != nullptr ? system_wait : &byteps::CondWaitInSlices)(condition, mutex, clock,
                                                                            until);
}

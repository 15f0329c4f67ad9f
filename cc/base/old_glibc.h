// What wheels need from a C library that is newer than the oldest one they run on.
//
// A wheel is compiled with glibc 2.31 and must load with 2.27. Of all that tf_byteps uses only
// pthread_cond_clockwait is newer (2.30): std::condition_variable calls it for timed waits. The
// build with --config=wheel renames these calls to byteps_cond_clockwait.
#pragma once

#include <pthread.h>
#include <time.h>

namespace byteps {

// A wait that ends at `until` of `clock`, by the clock that pthread_cond_timedwait has, the
// system's. That may be set while the wait lasts, so one wait takes at most a second: then it
// returns 0, as after a spurious wake-up. Returns ETIMEDOUT if `until` has passed.
int CondWaitInSlices(pthread_cond_t* condition, pthread_mutex_t* mutex, clockid_t clock,
                     const timespec* until);

}  // namespace byteps

// glibc's pthread_cond_clockwait where it has one, else CondWaitInSlices.
extern "C" int byteps_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                     clockid_t clock, const timespec* until);

// What the calling thread has cost, whatever else the machine is doing.
#ifndef TF_BYTEPS_CC_BASE_THREAD_CPU_H_
#define TF_BYTEPS_CC_BASE_THREAD_CPU_H_

#include <time.h>

#include <algorithm>
#include <limits>

namespace byteps {

// CPU time of this thread, in seconds.
inline double ThreadCpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// What `body` costs this thread when nothing disturbs it: the least of several times.
template <typename Body>
double LeastCpuSeconds(int times, Body body) {
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i < times; ++i) {
    const double before = ThreadCpuSeconds();
    body();
    least = std::min(least, ThreadCpuSeconds() - before);
  }
  return least;
}

}  // namespace byteps

#endif  // TF_BYTEPS_CC_BASE_THREAD_CPU_H_

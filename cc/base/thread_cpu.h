// What the calling thread has cost, whatever else the machine is doing.
#pragma once

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

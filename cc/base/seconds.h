// Times in seconds, as settings have them, in the unit of all clocks.
#ifndef TF_BYTEPS_CC_BASE_SECONDS_H_
#define TF_BYTEPS_CC_BASE_SECONDS_H_

#include <cstdint>

namespace byteps {

inline int64_t SecondsToNanos(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

}  // namespace byteps

#endif  // TF_BYTEPS_CC_BASE_SECONDS_H_

// Times in seconds, as settings have them, in the unit of all clocks.
#pragma once

#include <cstdint>

namespace byteps {

inline int64_t SecondsToNanos(double seconds) { return static_cast<int64_t>(seconds * 1e9); }

}  // namespace byteps

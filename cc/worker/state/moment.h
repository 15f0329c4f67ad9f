// Moment: when something happens, which is an argument of all that decides here.
#pragma once

#include <cstdint>

namespace byteps {

struct Moment {
  int64_t ns = 0;       // of a clock that never jumps
  int64_t wall_ns = 0;  // since 1970: for timelines, which are merged over hosts
};

}  // namespace byteps

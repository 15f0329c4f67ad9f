// Moment: when something happens, which is an argument of all that decides here.
#ifndef TF_BYTEPS_CC_WORKER_STATE_MOMENT_H_
#define TF_BYTEPS_CC_WORKER_STATE_MOMENT_H_

#include <cstdint>

namespace byteps {

struct Moment {
  int64_t ns = 0;       // of a clock that never jumps
  int64_t wall_ns = 0;  // since 1970: for timelines, which are merged over hosts
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_WORKER_STATE_MOMENT_H_

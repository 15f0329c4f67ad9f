// The form that recorded exchanges have in a worker's file while it grows: a line for each part.
#pragma once

#include <cstdint>
#include <string>

#include "cc/worker/timeline.h"

namespace byteps {

// Events of a Chrome trace, "," in front of each; the last line has no end. `args` has the fields
// of tf_byteps.timeline.Part. Takes some microseconds for each part.
std::string TimelineLines(const Timeline::Recording& recording, int32_t worker, int64_t epoch);

}  // namespace byteps

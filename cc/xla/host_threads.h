// The threads on which XLA's programs for the CPU go on after an exchange.
#pragma once

#include <functional>

#include "cc/xla/export.h"

namespace byteps {

// Returns at once; one of two threads runs `continuation`, which may compute: with numbers as on
// XLA's own threads, so that a worker computes the same on whichever thread it goes on.
BYTEPS_XLA_EXPORT void ComputeLater(std::function<void()> continuation);

}  // namespace byteps

// ScopedFloatMode: a thread computes as threads of XLA do.
#pragma once

#include <cstdint>

namespace byteps {

// While it lives, its thread takes denormal numbers for zero, as operands and as results, and
// rounds to nearest. Afterwards the thread computes as before. Not to be moved to another thread.
class ScopedFloatMode {
 public:
  ScopedFloatMode();
  ~ScopedFloatMode();
  ScopedFloatMode(const ScopedFloatMode&) = delete;
  ScopedFloatMode& operator=(const ScopedFloatMode&) = delete;

 private:
  const int rounding_;
  const uint64_t control_;  // the register that has the treatment of denormals; 0: not known
};

}  // namespace byteps

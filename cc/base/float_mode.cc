#include "cc/base/float_mode.h"

#include <cfenv>

#ifdef __x86_64__
#include <xmmintrin.h>
#endif

namespace byteps {
namespace {

#if defined(__x86_64__)

// In MXCSR: results that are denormal become zero, and so do such operands.
constexpr uint64_t kFlush = 0x8040;

uint64_t ReadControl() { return _mm_getcsr(); }
void WriteControl(uint64_t control) { _mm_setcsr(static_cast<unsigned>(control)); }

#elif defined(__aarch64__)

constexpr uint64_t kFlush = uint64_t{1} << 24;  // FZ in FPCR, which has both

uint64_t ReadControl() {
  uint64_t control;
  __asm__ volatile("mrs %0, fpcr" : "=r"(control));
  return control;
}
void WriteControl(uint64_t control) { __asm__ volatile("msr fpcr, %0" : : "r"(control)); }

#else

constexpr uint64_t kFlush = 0;

uint64_t ReadControl() { return 0; }
void WriteControl(uint64_t) {}

#endif

}  // namespace

ScopedFloatMode::ScopedFloatMode() : rounding_(std::fegetround()), control_(ReadControl()) {
  std::fesetround(FE_TONEAREST);
  WriteControl(ReadControl() | kFlush);
}

ScopedFloatMode::~ScopedFloatMode() {
  WriteControl(control_);
  std::fesetround(rounding_);
}

}  // namespace byteps

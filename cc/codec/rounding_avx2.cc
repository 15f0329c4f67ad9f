// The loops of codec/rounding.h for CPUs with AVX2.
#include "cc/codec/rounding.h"
#include "cc/codec/scale.h"

#if defined(__x86_64__)

#include <xmmintrin.h>

// Only what stands between here and the end of the region is compiled for it.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

namespace byteps::codec_internal {
namespace {

#include "cc/codec/rounding_loops.h"

}  // namespace
}  // namespace byteps::codec_internal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace byteps::codec_internal {

const RoundingLoops* Avx2RoundingLoops() {
  static constexpr RoundingLoops loops = LoopsNamed("avx2");
  return &loops;
}

}  // namespace byteps::codec_internal

#else

namespace byteps::codec_internal {

const RoundingLoops* Avx2RoundingLoops() { return nullptr; }

}  // namespace byteps::codec_internal

#endif

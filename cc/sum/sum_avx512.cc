// Kernels for CPUs with AVX-512 F, BW and VL.
#include "cc/sum/loops.h"

#if defined(__x86_64__)

#include <immintrin.h>

// Only what stands between here and the end of the region is compiled for AVX-512 F, BW and VL,
// whatever flags the file gets.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl")
#endif

namespace byteps::sum_internal {
namespace {

#include "cc/sum/vector_loops.h"

struct Avx512 {
  static constexpr size_t kBytes = 64;
  // The forms without a mask make g++ 12 warn about its own header.
  static constexpr __mmask16 kAll = 0xffff;
  using FloatVector = Vector<float, 16>;
  static FloatVector LoadHalf(const uint8_t* wire) {
    return (FloatVector)_mm512_maskz_cvtph_ps(
        kAll, _mm256_loadu_si256(reinterpret_cast<const __m256i*>(wire)));
  }
  static void StoreHalf(uint8_t* wire, FloatVector value) {
    const __m256i halves = _mm512_maskz_cvtps_ph(kAll, (__m512)value, _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(wire), halves);
  }
};

}  // namespace
}  // namespace byteps::sum_internal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace byteps::sum_internal {

const SumKernels* Avx512Kernels() {
  static constexpr SumKernels kernels = KernelsOf<VectorLoops<Avx512>>::Named("avx512");
  const bool supported = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512vl");
  return supported ? &kernels : nullptr;
}

}  // namespace byteps::sum_internal

#else

namespace byteps::sum_internal {

const SumKernels* Avx512Kernels() { return nullptr; }

}  // namespace byteps::sum_internal

#endif

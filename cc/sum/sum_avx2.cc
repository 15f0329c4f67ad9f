// Kernels for CPUs with AVX2 and F16C.
#include "cc/sum/loops.h"

#if defined(__x86_64__)

#include <cpuid.h>
#include <immintrin.h>

// Only what stands between here and the end of the region is compiled for AVX2 and F16C, whatever
// flags the file gets.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,f16c"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,f16c")
#endif

namespace byteps::sum_internal {
namespace {

#include "cc/sum/vector_loops.h"

struct Avx2 {
  static constexpr size_t kBytes = 32;
  using FloatVector = Vector<float, 8>;
  static FloatVector LoadHalf(const uint8_t* wire) {
    return (FloatVector)_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(wire)));
  }
  static void StoreHalf(uint8_t* wire, FloatVector value) {
    const __m128i halves = _mm256_cvtps_ph((__m256)value, _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(wire), halves);
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
namespace {

// GCC's __builtin_cpu_supports knows "f16c" only since version 11.
bool HasF16c() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace

const SumKernels* Avx2Kernels() {
  static constexpr SumKernels kernels = KernelsOf<VectorLoops<Avx2>>::Named("avx2");
  return __builtin_cpu_supports("avx2") && HasF16c() ? &kernels : nullptr;
}

}  // namespace byteps::sum_internal

#else

namespace byteps::sum_internal {
namespace {

// GCC's __builtin_cpu_supports knows "f16c" only since version 11.
bool HasF16c() {
  unsigned eax, ebx, ecx, edx;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}

}  // namespace

const SumKernels* Avx2Kernels() { return nullptr; }

}  // namespace byteps::sum_internal

#endif

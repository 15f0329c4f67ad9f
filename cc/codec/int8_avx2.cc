// int8 for CPUs with AVX2.
#include "cc/codec/int8_kernels.h"
#include "cc/codec/scale.h"

#if defined(__x86_64__)

#include <immintrin.h>

// Only what stands between here and the end of the region is compiled for AVX2.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2")
#endif

namespace byteps::codec_internal {
namespace {

#include "cc/codec/int8_loops.h"

struct Avx2 {
  static constexpr uint64_t kLanes = 8;

  static __m256 LoadFloat(const float* from) { return _mm256_loadu_ps(from); }
  static void StoreFloat(float* to, __m256 value) { _mm256_storeu_ps(to, value); }
  static __m256 Broadcast(uint32_t bits) {
    return _mm256_castsi256_ps(_mm256_set1_epi32(static_cast<int>(bits)));
  }
  static __m256 LoadInt8(const uint8_t* from) {
    return _mm256_cvtepi32_ps(
        _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
  }
  static __m256 Quieted(__m256 value) {
    return _mm256_blendv_ps(value, Broadcast(0x7fc00000),
                            _mm256_cmp_ps(value, value, _CMP_UNORD_Q));
  }

  static uint32_t Largest(const float* values, uint64_t count) {
    const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
    __m256i largest = _mm256_setzero_si256();
    for (uint64_t i = 0; i < count; i += kLanes) {
      const __m256i bits = _mm256_castps_si256(LoadFloat(values + i));
      largest = _mm256_max_epi32(largest, _mm256_and_si256(bits, magnitude));
    }
    __m128i four =
        _mm_max_epi32(_mm256_castsi256_si128(largest), _mm256_extracti128_si256(largest, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(four));
  }

  // 32 elements.
  static void Quantize(uint8_t* out, const float* values, float inverse) {
    const __m256 factor = _mm256_set1_ps(inverse);
    const auto rounded = [&](int i) __attribute__((target("avx2"), always_inline)) {
      return _mm256_cvtps_epi32(_mm256_mul_ps(LoadFloat(values + 8 * i), factor));
    };
    // The packs work on halves: the last permutation restores the order. They saturate at -128 and
    // 127; -128 cannot be, because the scale is rounded up.
    const __m256i packed = _mm256_packs_epi16(_mm256_packs_epi32(rounded(0), rounded(1)),
                                              _mm256_packs_epi32(rounded(2), rounded(3)));
    const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out),
                        _mm256_permutevar8x32_epi32(packed, order));
  }
};

}  // namespace
}  // namespace byteps::codec_internal

#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif

namespace byteps::codec_internal {

const Int8Kernels* Avx2Int8Kernels() {
  static constexpr Int8Kernels kernels = Int8Loops<Avx2>::Named("avx2");
  return &kernels;
}

}  // namespace byteps::codec_internal

#else

namespace byteps::codec_internal {

const Int8Kernels* Avx2Int8Kernels() { return nullptr; }

}  // namespace byteps::codec_internal

#endif

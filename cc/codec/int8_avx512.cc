// int8 for CPUs with AVX-512 F, BW and VL.
#include "cc/codec/int8_kernels.h"
#include "cc/codec/scale.h"

#if defined(__x86_64__)

#include <immintrin.h>

// Only what stands between here and the end of the region is compiled for AVX-512.
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512bw,avx512vl"))), \
                             apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512vl")
#endif

namespace byteps::codec_internal {
namespace {

#include "cc/codec/int8_loops.h"

// The forms with a mask: those without make g++ 12 warn about its own header.
struct Avx512 {
  static constexpr uint64_t kLanes = 16;
  static constexpr __mmask16 kAll = 0xffff;

  static __m512 LoadFloat(const float* from) { return _mm512_maskz_loadu_ps(kAll, from); }
  static void StoreFloat(float* to, __m512 value) { _mm512_mask_storeu_ps(to, kAll, value); }
  static __m512 Broadcast(uint32_t bits) {
    return _mm512_castsi512_ps(_mm512_set1_epi32(static_cast<int>(bits)));
  }
  static __m512 LoadInt8(const uint8_t* from) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
    return _mm512_maskz_cvtepi32_ps(kAll, _mm512_maskz_cvtepi8_epi32(kAll, bytes));
  }
  static __m512 Quieted(__m512 value) {
    const __mmask16 nan = _mm512_cmp_ps_mask(value, value, _CMP_UNORD_Q);
    return _mm512_mask_mov_ps(value, nan, Broadcast(0x7fc00000));
  }

  static uint32_t Largest(const float* values, uint64_t count) {
    const __m512i magnitude = _mm512_set1_epi32(0x7fffffff);
    __m512i largest = _mm512_setzero_si512();
    for (uint64_t i = 0; i < count; i += kLanes) {
      const __m512i bits = _mm512_castps_si512(LoadFloat(values + i));
      largest = _mm512_maskz_max_epi32(kAll, largest, _mm512_and_si512(bits, magnitude));
    }
    const __m256i high = _mm512_maskz_extracti64x4_epi64(0xff, largest, 1);
    const __m256i eight = _mm256_max_epi32(_mm512_maskz_extracti64x4_epi64(0xff, largest, 0), high);
    __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
    return static_cast<uint32_t>(_mm_cvtsi128_si32(four));
  }

  // 32 elements. -128 cannot be, because the scale is rounded up.
  static void Quantize(uint8_t* out, const float* values, float inverse) {
    const __m512 factor = _mm512_set1_ps(inverse);
    for (int i = 0; i < 32; i += 16) {
      const __m512i rounded =
          _mm512_maskz_cvtps_epi32(kAll, _mm512_mul_ps(LoadFloat(values + i), factor));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i),
                       _mm512_maskz_cvtsepi32_epi8(kAll, rounded));
    }
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

const Int8Kernels* Avx512Int8Kernels() {
  static constexpr Int8Kernels kernels = Int8Loops<Avx512>::Named("avx512");
  return &kernels;
}

}  // namespace byteps::codec_internal

#else

namespace byteps::codec_internal {

const Int8Kernels* Avx512Int8Kernels() { return nullptr; }

}  // namespace byteps::codec_internal

#endif

// Scales of blocks: a bfloat16 in front of the block's elements.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cc/codec/codec.h"
#include "cc/sum/element.h"

namespace byteps::codec_internal {

using sum_internal::BFloat16;
using sum_internal::BFloat16ToFloat;
using sum_internal::BitCast;
using sum_internal::LoadElement;
using sum_internal::StoreElement;

inline constexpr uint64_t kScaleBytes = 2;

// The largest magnitude, as bits: what is not finite is larger than all that is.
inline uint32_t LargestBits(const float* values, uint64_t count) {
  int32_t largest = 0;  // SSE2 compares signed integers only
  for (uint64_t i = 0; i < count; ++i) {
    largest = std::max(largest, BitCast<int32_t>(values[i]) & 0x7fffffff);
  }
  return static_cast<uint32_t>(largest);
}

struct Scale {
  BFloat16 wire;
  float inverse;  // of the scale on the wire; 0 where the block's elements all become 0
};

// The scale with which `largest` becomes `levels`, given as its reciprocal. Rounded up, so that no
// element exceeds the levels; at least 2^-126, so that its inverse is finite. NaN for a block that
// is not finite.
inline Scale ScaleFor(uint32_t largest_bits, float reciprocal_levels) {
  if (largest_bits >= 0x7f800000) return {BFloat16{0x7fc0}, 0};
  if (largest_bits == 0) return {BFloat16{0}, 0};
  const float exact = std::max(BitCast<float>(largest_bits) * reciprocal_levels, 0x1p-126f);
  const BFloat16 wire{static_cast<uint16_t>((BitCast<uint32_t>(exact) + 0xffff) >> 16)};
  return {wire, 1.0f / BFloat16ToFloat(wire)};
}

// To the nearest integer, ties to even, for magnitudes below 2^22.
inline int32_t RoundNearest(float value) {
  return BitCast<int32_t>(value + 0x1.8p23f) - BitCast<int32_t>(0x1.8p23f);
}

// Down or up, up with the probability of the fraction; `uniform` is in [0, 1).
inline int32_t RoundStochastic(float value, float uniform) {
  int32_t down = static_cast<int32_t>(value);
  down -= static_cast<float>(down) > value;
  return down + (uniform < value - static_cast<float>(down));
}

// What a decoder does with an element.
template <DecodeMode mode>
inline void Put(float* target, float value) {
  const float result = mode == DecodeMode::kAdd ? *target + value : value;
  *target = result != result ? sum_internal::QuietNaN<float>() : result;
}

}  // namespace byteps::codec_internal

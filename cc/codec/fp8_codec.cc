#include "cc/codec/fp8_codec.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "cc/codec/scale.h"

namespace byteps {
namespace {

using namespace codec_internal;

constexpr uint32_t kLargestFloat8 = 0x7e;  // 448; 0x7f is NaN

// Of a finite value that is not much larger than 448.
inline uint8_t FloatToFloat8(float value) {
  const uint32_t bits = BitCast<uint32_t>(value), magnitude = bits & 0x7fffffff;
  // Exponents are biased by 7 instead of 127.
  const uint32_t normal = sum_internal::RoundShift(magnitude, 20) - (120 << 3);
  // Below 2^-6 the steps are 2^-9, the last place of a float at 2^14.
  const float shifted = BitCast<float>(magnitude) + 0x1p14f;
  const uint32_t subnormal = BitCast<uint32_t>(shifted) - BitCast<uint32_t>(0x1p14f);
  const uint32_t rounded = magnitude < 0x3c800000 ? subnormal : normal;
  return static_cast<uint8_t>((bits >> 24 & 0x80) | std::min(rounded, kLargestFloat8));
}

std::array<float, 256> AllFloat8() {
  std::array<float, 256> all;
  for (uint32_t i = 0; i < 256; ++i) {
    const uint32_t magnitude = i & 0x7f;
    const float value = magnitude > kLargestFloat8 ? sum_internal::QuietNaN<float>()
                                                   : BitCast<float>(magnitude << 20) * 0x1p120f;
    all[i] = i < 128 ? value : -value;
  }
  return all;
}

void EncodeBlock(uint8_t* out, const float* values, uint64_t elements) {
  const Scale scale = ScaleFor(LargestBits(values, elements), 1.0f / 448);
  StoreElement(out, scale.wire);
  out += kScaleBytes;
  if (scale.inverse == 0) {
    std::memset(out, 0, elements);
    return;
  }
  for (uint64_t i = 0; i < elements; ++i) out[i] = FloatToFloat8(values[i] * scale.inverse);
}

template <DecodeMode mode>
void DecodeBlock(float* target, const uint8_t* data, uint64_t elements) {
  static const std::array<float, 256> all = AllFloat8();
  const float scale = BFloat16ToFloat(LoadElement<BFloat16>(data));
  data += kScaleBytes;
  for (uint64_t i = 0; i < elements; ++i) Put<mode>(&target[i], all[data[i]] * scale);
}

}  // namespace

void Fp8Codec::EncodeBlocks(const float* values, uint64_t elements, uint64_t, const CounterRandom&,
                            uint8_t* out) const {
  const uint64_t block = block_elements();
  for (uint64_t done = 0; done < elements; done += block, out += BlockBytes(block)) {
    EncodeBlock(out, values + done, std::min(block, elements - done));
  }
}

void Fp8Codec::DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                            float* target) const {
  const bool adds = mode == DecodeMode::kAdd;
  DecodeEachBlock(adds ? DecodeBlock<DecodeMode::kAdd> : DecodeBlock<DecodeMode::kStore>, data,
                  elements, target);
}

}  // namespace byteps

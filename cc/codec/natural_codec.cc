#include "cc/codec/natural_codec.h"

#include <algorithm>

#include "cc/codec/scale.h"

namespace byteps {
namespace {

using namespace codec_internal;

constexpr uint32_t kMagnitude = 0x7fffffff, kMantissa = 0x7fffff, kInfinity = 0x7f800000;
constexpr uint32_t kLargestExponent = 254;  // of a finite number

// The mantissa is how far a magnitude is above its power of two, of the way to the next one; of
// subnormals how far above 0.
uint8_t RoundToPower(float value, uint32_t draw) {
  const uint32_t magnitude = BitCast<uint32_t>(value) & kMagnitude;
  const uint32_t up = (draw >> 9) < (magnitude & kMantissa) ? 1 : 0;
  const uint32_t exponent = std::min((magnitude >> 23) + up, kLargestExponent);
  return static_cast<uint8_t>(magnitude < kInfinity ? exponent : kLargestExponent + 1);
}

// `index` is the first element's in its part.
void EncodeBlock(uint8_t* out, const float* values, uint64_t elements, uint64_t index,
                 const CounterRandom& random) {
  for (uint64_t i = 0; i < elements; ++i) out[i] = RoundToPower(values[i], random.Draw(index + i));
  uint8_t* const signs = out + elements;
  for (uint64_t i = 0; i < elements; i += 8) {
    uint32_t bits = 0;
    const uint64_t count = std::min<uint64_t>(8, elements - i);
    for (uint64_t j = 0; j < count; ++j) bits |= BitCast<uint32_t>(values[i + j]) >> 31 << j;
    signs[i / 8] = static_cast<uint8_t>(bits);
  }
}

template <DecodeMode mode>
void DecodeBlock(float* target, const uint8_t* data, uint64_t elements) {
  const uint8_t* const signs = data + elements;
  for (uint64_t i = 0; i < elements; ++i) {
    const uint32_t sign = uint32_t{signs[i / 8]} >> i % 8 << 31;
    Put<mode>(&target[i], BitCast<float>(sign | uint32_t{data[i]} << 23));
  }
}

}  // namespace

void NaturalCodec::EncodeBlocks(const float* values, uint64_t elements, uint64_t first,
                                const CounterRandom& random, uint8_t* out) const {
  const uint64_t block = block_elements();
  for (uint64_t done = 0; done < elements; done += block, out += BlockBytes(block)) {
    EncodeBlock(out, values + done, std::min(block, elements - done), first * block + done, random);
  }
}

void NaturalCodec::DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                                float* target) const {
  const uint64_t block = block_elements();
  for (uint64_t done = 0; done < elements; done += block, data += BlockBytes(block)) {
    (mode == DecodeMode::kAdd
         ? DecodeBlock<DecodeMode::kAdd>
         : DecodeBlock<DecodeMode::kStore>)(target + done, data, std::min(block, elements - done));
  }
}

}  // namespace byteps

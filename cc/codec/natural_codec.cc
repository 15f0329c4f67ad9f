#include "cc/codec/natural_codec.h"

#include <algorithm>

#include "cc/codec/rounding.h"
#include "cc/codec/scale.h"

namespace byteps {
namespace {

using namespace codec_internal;

// `index` is the first element's in its part.
void EncodeBlock(uint8_t* out, const float* values, uint64_t elements, uint64_t index,
                 const CounterRandom& random) {
  ActiveRoundingLoops().powers(out, values, elements, random, index);
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

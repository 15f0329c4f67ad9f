#include "cc/codec/int4_codec.h"

#include <algorithm>

#include "cc/codec/scale.h"

namespace byteps {
namespace {

using namespace codec_internal;

// Elements at a time: few enough for the stack, enough for vectors.
constexpr uint64_t kPiece = 32;

// `index` is the first element's in its part.
void EncodeBlock(uint8_t* out, const float* values, uint64_t elements, uint64_t index,
                 const CounterRandom& random) {
  const Scale scale = ScaleFor(LargestBits(values, elements), 1.0f / 7);
  StoreElement(out, scale.wire);
  out += kScaleBytes;
  for (uint64_t first = 0; first < elements; first += kPiece) {
    const uint64_t count = std::min(kPiece, elements - first);
    float piece[kPiece] = {};
    // A block that is not finite has only the scale to say so.
    if (scale.inverse != 0) std::copy_n(values + first, count, piece);
    int32_t levels[kPiece];
    for (uint64_t i = 0; i < kPiece; ++i) {
      const float uniform = random.DrawUniform(index + first + i);
      levels[i] = std::clamp(RoundStochastic(piece[i] * scale.inverse, uniform), -7, 7) + 8;
    }
    for (uint64_t i = 0; i < (count + 1) / 2; ++i) {
      out[first / 2 + i] = static_cast<uint8_t>(levels[2 * i] | levels[2 * i + 1] << 4);
    }
  }
}

template <DecodeMode mode>
void DecodeBlock(float* target, const uint8_t* data, uint64_t elements) {
  const float scale = BFloat16ToFloat(LoadElement<BFloat16>(data));
  data += kScaleBytes;
  for (uint64_t i = 0; i < elements / 2; ++i) {
    Put<mode>(&target[2 * i], static_cast<float>((data[i] & 0xf) - 8) * scale);
    Put<mode>(&target[2 * i + 1], static_cast<float>((data[i] >> 4) - 8) * scale);
  }
  if (elements % 2 == 0) return;
  Put<mode>(&target[elements - 1], static_cast<float>((data[elements / 2] & 0xf) - 8) * scale);
}

}  // namespace

void Int4Codec::EncodeBlocks(const float* values, uint64_t elements, uint64_t first,
                             const CounterRandom& random, uint8_t* out) const {
  const uint64_t block = block_elements();
  for (uint64_t done = 0; done < elements; done += block, out += BlockBytes(block)) {
    EncodeBlock(out, values + done, std::min(block, elements - done), first * block + done, random);
  }
}

void Int4Codec::DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                             float* target) const {
  const uint64_t block = block_elements();
  for (uint64_t done = 0; done < elements; done += block, data += BlockBytes(block)) {
    (mode == DecodeMode::kAdd
         ? DecodeBlock<DecodeMode::kAdd>
         : DecodeBlock<DecodeMode::kStore>)(target + done, data, std::min(block, elements - done));
  }
}

}  // namespace byteps

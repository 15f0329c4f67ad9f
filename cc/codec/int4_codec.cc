#include "cc/codec/int4_codec.h"

#include <algorithm>
#include <cstring>

#include "cc/codec/rounding.h"
#include "cc/codec/scale.h"

namespace byteps {
namespace {

using namespace codec_internal;

// Up to kMostRounded elements; `index` is the first one's in its part.
void EncodePiece(uint8_t* out, const float* values, uint64_t elements, uint64_t block,
                 uint64_t index, const CounterRandom& random) {
  BFloat16 scales[kMostRounded / 32];
  uint8_t levels[kMostRounded + 1], packed[kMostRounded / 2];
  RoundBlocks(values, elements, block, {random, 0, 7, 8}, index, scales, levels);
  levels[elements] = 8;  // fills the last byte
  ActiveRoundingLoops().pack(packed, levels, (elements + 1) / 2);
  for (uint64_t done = 0; done < elements; done += block) {
    const uint64_t bytes = (std::min(block, elements - done) + 1) / 2;
    StoreElement(out, scales[done / block]);
    std::memcpy(out + kScaleBytes, packed + done / 2, bytes);
    out += kScaleBytes + bytes;
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
  for (uint64_t done = 0; done < elements; done += kMostRounded) {
    EncodePiece(out + EncodedBytes(done), values + done, std::min(kMostRounded, elements - done),
                block, first * block + done, random);
  }
}

void Int4Codec::DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                             float* target) const {
  const bool adds = mode == DecodeMode::kAdd;
  DecodeEachBlock(adds ? DecodeBlock<DecodeMode::kAdd> : DecodeBlock<DecodeMode::kStore>, data,
                  elements, target);
}

}  // namespace byteps

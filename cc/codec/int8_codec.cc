#include "cc/codec/int8_codec.h"

#include <algorithm>
#include <cstring>

#include "cc/codec/int8_kernels.h"
#include "cc/codec/rounding.h"

namespace byteps {
namespace {

using namespace codec_internal;

// Up to kMostRounded elements; `index` is the first one's in its part.
void EncodeStochastic(uint8_t* out, const float* values, uint64_t elements, uint64_t block,
                      uint64_t index, const CounterRandom& random) {
  BFloat16 scales[kMostRounded / 32];
  uint8_t levels[kMostRounded];
  RoundBlocks(values, elements, block, {random, 0, 127, 0}, index, scales, levels);
  for (uint64_t done = 0; done < elements; done += block) {
    const uint64_t count = std::min(block, elements - done);
    StoreElement(out, scales[done / block]);
    std::memcpy(out + kScaleBytes, levels + done, count);
    out += kScaleBytes + count;
  }
}

}  // namespace

std::string Int8Codec::name() const {
  return "int8:block=" + std::to_string(block_elements()) +
         ",stochastic=" + (stochastic_ ? "1" : "0");
}

void Int8Codec::EncodeBlocks(const float* values, uint64_t elements, uint64_t first,
                             const CounterRandom& random, uint8_t* out) const {
  const uint64_t block = block_elements(), bytes = BlockBytes(block);
  uint64_t done = 0;
  if (!stochastic_) {
    ActiveInt8Kernels().encode(out, values, elements / block, block);
    done = elements / block * block;
    if (done < elements)
      EncodeInt8Block(out + done / block * bytes, values + done, elements - done);
    return;
  }
  for (; done < elements; done += kMostRounded) {
    EncodeStochastic(out + done / block * bytes, values + done,
                     std::min(kMostRounded, elements - done), block, first * block + done, random);
  }
}

void Int8Codec::DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                             float* target) const {
  const bool add = mode == DecodeMode::kAdd;
  const uint64_t block = block_elements(), whole = elements / block, done = whole * block;
  const Int8Kernels& kernels = ActiveInt8Kernels();
  (add ? kernels.add : kernels.store)(target, data, whole, block);
  if (done == elements) return;
  (add ? AddInt8Block : StoreInt8Block)(target + done, data + whole * BlockBytes(block),
                                        elements - done);
}

}  // namespace byteps

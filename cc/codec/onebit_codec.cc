#include "cc/codec/onebit_codec.h"

#include <algorithm>
#include <cmath>

#include "cc/codec/scale.h"

namespace byteps {
namespace {

using namespace codec_internal;

// In eight sums, element i in sum i % 8, which are then added in order: the same bits with any
// instructions.
float MeanMagnitude(const float* values, uint64_t elements) {
  if (LargestBits(values, elements) >= 0x7f800000) return sum_internal::QuietNaN<float>();
  double sums[8] = {};
  for (uint64_t i = 0; i < elements; ++i) sums[i % 8] += std::fabs(values[i]);
  double sum = 0;
  for (const double one : sums) sum += one;
  return static_cast<float>(sum / static_cast<double>(elements));
}

void EncodeBlock(uint8_t* out, const float* values, uint64_t elements) {
  StoreElement(out, MeanMagnitude(values, elements));
  out += sizeof(float);
  for (uint64_t i = 0; i < elements; i += 8) {
    const uint64_t count = std::min<uint64_t>(8, elements - i);
    uint32_t bits = 0;
    for (uint64_t j = 0; j < count; ++j) bits |= static_cast<uint32_t>(values[i + j] < 0) << j;
    out[i / 8] = static_cast<uint8_t>(bits);
  }
}

template <DecodeMode mode>
void DecodeBlock(float* target, const uint8_t* data, uint64_t elements) {
  const uint32_t scale = LoadElement<uint32_t>(data);
  data += sizeof(float);
  for (uint64_t i = 0; i < elements; ++i) {
    const uint32_t negative = data[i / 8] >> (i % 8) & 1;
    Put<mode>(&target[i], BitCast<float>(scale ^ negative << 31));
  }
}

}  // namespace

void OneBitCodec::EncodeBlocks(const float* values, uint64_t elements, uint64_t,
                               const CounterRandom&, uint8_t* out) const {
  const uint64_t block = block_elements();
  for (uint64_t done = 0; done < elements; done += block, out += BlockBytes(block)) {
    EncodeBlock(out, values + done, std::min(block, elements - done));
  }
}

void OneBitCodec::DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                               float* target) const {
  const uint64_t block = block_elements();
  for (uint64_t done = 0; done < elements; done += block, data += BlockBytes(block)) {
    (mode == DecodeMode::kAdd
         ? DecodeBlock<DecodeMode::kAdd>
         : DecodeBlock<DecodeMode::kStore>)(target + done, data, std::min(block, elements - done));
  }
}

}  // namespace byteps

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
  const uint64_t whole = elements / 8 * 8;
  for (uint64_t i = 0; i < whole; i += 8) {
    for (uint64_t j = 0; j < 8; ++j) sums[j] += std::fabs(values[i + j]);
  }
  for (uint64_t i = whole; i < elements; ++i) sums[i - whole] += std::fabs(values[i]);
  double sum = 0;
  for (const double one : sums) sum += one;
  return static_cast<float>(sum / static_cast<double>(elements));
}

// Of a byte's elements, as compilers vectorize them: a shift by another count for each is not in
// every instruction set.
constexpr uint32_t kBits[8] = {1, 2, 4, 8, 16, 32, 64, 128};

void EncodeBlock(uint8_t* out, const float* values, uint64_t elements) {
  StoreElement(out, MeanMagnitude(values, elements));
  out += sizeof(float);
  const uint64_t whole = elements / 8 * 8;
  for (uint64_t i = 0; i < whole; i += 8) {
    uint32_t bits = 0;
    for (uint64_t j = 0; j < 8; ++j) bits |= values[i + j] < 0 ? kBits[j] : 0;
    out[i / 8] = static_cast<uint8_t>(bits);
  }
  if (whole == elements) return;
  uint32_t bits = 0;
  for (uint64_t i = whole; i < elements; ++i) bits |= values[i] < 0 ? kBits[i - whole] : 0;
  out[whole / 8] = static_cast<uint8_t>(bits);
}

template <DecodeMode mode>
void DecodeBlock(float* target, const uint8_t* data, uint64_t elements) {
  const uint32_t scale = LoadElement<uint32_t>(data);
  data += sizeof(float);
  const auto decoded = [scale](uint32_t bits, uint64_t j) {
    return BitCast<float>(scale ^ ((bits & kBits[j]) != 0 ? 0x80000000u : 0));
  };
  const uint64_t whole = elements / 8 * 8;
  for (uint64_t i = 0; i < whole; i += 8) {
    const uint32_t bits = data[i / 8];
    for (uint64_t j = 0; j < 8; ++j) Put<mode>(&target[i + j], decoded(bits, j));
  }
  for (uint64_t i = whole; i < elements; ++i)
    Put<mode>(&target[i], decoded(data[i / 8], i - whole));
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
  const bool adds = mode == DecodeMode::kAdd;
  DecodeEachBlock(adds ? DecodeBlock<DecodeMode::kAdd> : DecodeBlock<DecodeMode::kStore>, data,
                  elements, target);
}

}  // namespace byteps

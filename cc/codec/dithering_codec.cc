#include "cc/codec/dithering_codec.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "cc/codec/scale.h"

namespace byteps {
namespace {

using namespace codec_internal;

// That many are in whole bytes, however many bits each has.
constexpr uint64_t kGroup = 8;

// 2^exponent, of a normal number.
float PowerOfTwo(int32_t exponent) {
  return BitCast<float>(static_cast<uint32_t>(exponent + 127) << 23);
}

// In eight sums, element i in sum i % 8, which are then added in order: the same bits with any
// instructions.
float L2Norm(const float* values, uint64_t elements) {
  double sums[kGroup] = {};
  for (uint64_t i = 0; i < elements; ++i)
    sums[i % kGroup] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  double sum = 0;
  for (const double one : sums) sum += one;
  return static_cast<float>(std::min<double>(std::sqrt(sum), std::numeric_limits<float>::max()));
}

}  // namespace

DitheringCodec::DitheringCodec(const DitheringOptions& options)
    : BlockCodec(options.block), options_(options), levels_((1u << (options.bits - 1)) - 1) {
  decoded_.fill(0);
  for (uint32_t level = 0; level <= levels_; ++level) {
    const auto places = static_cast<int32_t>(level) - static_cast<int32_t>(levels_);
    const float power = level == 0 ? 0 : PowerOfTwo(places);
    const float magnitude = options.is_natural ? power : static_cast<float>(level);
    decoded_[level] = magnitude;
    decoded_[level | (levels_ + 1)] = -magnitude;
  }
}

std::string DitheringCodec::name() const {
  return "dithering:bits=" + std::to_string(options_.bits) +
         ",block=" + std::to_string(options_.block) +
         ",l2=" + std::to_string(static_cast<int>(options_.is_l2)) +
         ",natural=" + std::to_string(static_cast<int>(options_.is_natural));
}

// Of a share of the norm; one that rounding has put above 1 is 1.
uint32_t DitheringCodec::LevelOf(float share, float uniform) const {
  if (!options_.is_natural) {
    const int32_t level = RoundStochastic(share * static_cast<float>(levels_), uniform);
    return std::min(static_cast<uint32_t>(level), levels_);
  }
  // In units of the lowest level but 0: the exponent says which power is below.
  const float units = share * PowerOfTwo(static_cast<int32_t>(levels_) - 1);
  if (units < 1) return uniform < units ? 1 : 0;
  const uint32_t bits = BitCast<uint32_t>(units);
  const float above = BitCast<float>((bits & 0x7fffff) | 0x3f800000) - 1.0f;
  return std::min((bits >> 23) - 126 + (uniform < above ? 1u : 0u), levels_);
}

// `index` is the first element's in its part.
void DitheringCodec::EncodeBlock(uint8_t* out, const float* values, uint64_t elements,
                                 uint64_t index, const CounterRandom& random) const {
  const uint32_t largest = LargestBits(values, elements);
  const bool is_finite = largest < 0x7f800000;
  float norm = is_finite ? BitCast<float>(largest) : sum_internal::QuietNaN<float>();
  if (is_finite && largest > 0) {
    if (options_.is_l2) norm = L2Norm(values, elements);
    norm = std::max(norm, 0x1p-126f);  // so that shares of it are no subnormal numbers' affair
  }
  StoreElement(out, norm);
  out += sizeof(float);
  if (!is_finite || largest == 0) {
    std::memset(out, 0, BlockBytes(elements) - sizeof(float));
    return;
  }
  for (uint64_t i = 0; i < elements; i += kGroup, out += options_.bits) {
    const uint64_t count = std::min(kGroup, elements - i);
    uint64_t packed = 0;
    for (uint64_t j = 0; j < count; ++j) {
      const float value = values[i + j];
      const uint32_t sign = BitCast<uint32_t>(value) >> 31 << (options_.bits - 1);
      const uint32_t level = LevelOf(std::fabs(value) / norm, random.DrawUniform(index + i + j));
      packed |= uint64_t{sign | level} << (options_.bits * j);
    }
    for (uint64_t byte = 0; byte < (count * options_.bits + 7) / 8; ++byte)
      out[byte] = static_cast<uint8_t>(packed >> 8 * byte);
  }
}

template <DecodeMode mode>
void DitheringCodec::DecodeBlock(float* target, const uint8_t* data, uint64_t elements) const {
  const float norm = LoadElement<float>(data);
  const float step = options_.is_natural ? norm : norm / static_cast<float>(levels_);
  const uint64_t mask = 2 * levels_ + 1;
  data += sizeof(float);
  for (uint64_t i = 0; i < elements; i += kGroup, data += options_.bits) {
    const uint64_t count = std::min(kGroup, elements - i);
    uint64_t packed = 0;
    for (uint64_t byte = 0; byte < (count * options_.bits + 7) / 8; ++byte)
      packed |= uint64_t{data[byte]} << 8 * byte;
    for (uint64_t j = 0; j < count; ++j)
      Put<mode>(&target[i + j], decoded_[packed >> (options_.bits * j) & mask] * step);
  }
}

void DitheringCodec::EncodeBlocks(const float* values, uint64_t elements, uint64_t first,
                                  const CounterRandom& random, uint8_t* out) const {
  const uint64_t block = block_elements();
  for (uint64_t done = 0; done < elements; done += block, out += BlockBytes(block)) {
    EncodeBlock(out, values + done, std::min(block, elements - done), first * block + done, random);
  }
}

void DitheringCodec::DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                                  float* target) const {
  const uint64_t block = block_elements();
  for (uint64_t done = 0; done < elements; done += block, data += BlockBytes(block)) {
    const uint64_t count = std::min(block, elements - done);
    if (mode == DecodeMode::kAdd) {
      DecodeBlock<DecodeMode::kAdd>(target + done, data, count);
    } else {
      DecodeBlock<DecodeMode::kStore>(target + done, data, count);
    }
  }
}

}  // namespace byteps

#include "cc/codec/randomk_codec.h"

#include <algorithm>

#include "cc/codec/ratio.h"
#include "cc/codec/scale.h"

namespace byteps {
namespace {

using namespace codec_internal;

constexpr uint32_t kNotFiniteBits = 0x7f800000;

struct Section {
  uint64_t begin;
  uint64_t length;
  uint64_t chosen;  // an index of the part
};

// Calls `take(section)` for each of `count` sections, in order; section i ends in front of
// floor((i + 1) * elements / count).
template <typename Take>
void ForEachSection(uint64_t elements, uint64_t count, const CounterRandom& random, Take take) {
  const uint64_t remainder = elements % count;
  uint64_t begin = 0;
  uint64_t carried = 0;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t length = elements / count;
    carried += remainder;
    if (carried >= count) {
      carried -= count;
      ++length;
    }
    const uint64_t draw = random.Draw(i);
    const uint64_t place = draw * (length >> 32) + (draw * (length & 0xffffffff) >> 32);
    take(Section{begin, length, begin + place});
    begin += length;
  }
}

// And with each section's value.
template <typename Take>
void ForEachValue(const uint8_t* data, uint64_t elements, uint64_t count, Take take) {
  const CounterRandom random(LoadElement<uint64_t>(data));
  data += sizeof(uint64_t);
  ForEachSection(elements, count, random, [&](const Section& section) {
    take(section, LoadElement<float>(data));
    data += sizeof(float);
  });
}

template <DecodeMode mode>
void Decode(const uint8_t* data, uint64_t elements, uint64_t count, float* target) {
  if (mode == DecodeMode::kStore) std::fill_n(target, elements, 0.0f);
  ForEachValue(data, elements, count, [target](const Section& section, float value) {
    if (value == value) return Put<mode>(target + section.chosen, value);
    std::fill_n(target + section.begin, section.length, sum_internal::QuietNaN<float>());
  });
}

}  // namespace

std::string RandomKCodec::name() const { return NameWithRatio("randomk", feedback_, ratio_); }

uint64_t RandomKCodec::BlockBytes(uint64_t elements) const {
  return sizeof(uint64_t) + CountOf(ratio_, elements) * sizeof(float);
}

void RandomKCodec::EncodeBlocks(const float* values, uint64_t elements, uint64_t,
                                const CounterRandom& random, uint8_t* out) const {
  StoreElement(out, random.state());
  out += sizeof(uint64_t);
  const bool is_finite = LargestBits(values, elements) < kNotFiniteBits;
  ForEachSection(elements, CountOf(ratio_, elements), random, [&](const Section& section) {
    float value = values[section.chosen] * (feedback_ ? 1.0f : static_cast<float>(section.length));
    if (!is_finite && LargestBits(values + section.begin, section.length) >= kNotFiniteBits)
      value = sum_internal::QuietNaN<float>();
    StoreElement(out, value);
    out += sizeof(float);
  });
}

void RandomKCodec::DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                                float* target) const {
  const auto decode =
      mode == DecodeMode::kAdd ? Decode<DecodeMode::kAdd> : Decode<DecodeMode::kStore>;
  decode(data, elements, CountOf(ratio_, elements), target);
}

void RandomKCodec::SubtractBlocks(const uint8_t* data, uint64_t elements, float* target) const {
  ForEachValue(data, elements, CountOf(ratio_, elements),
               [target](const Section& section, float value) { target[section.chosen] -= value; });
}

}  // namespace byteps

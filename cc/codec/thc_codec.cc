#include "cc/codec/thc_codec.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "cc/codec/rounding.h"
#include "cc/codec/scale.h"

namespace byteps {
namespace {

using namespace codec_internal;

constexpr uint64_t kBlock = kRotatedElements;
constexpr int32_t kMost = 7, kMostOfShort = 127;  // levels up to this, and down to its negative

// A random sign for each element of a block, the same in all: the sign bit or 0.
const std::array<uint32_t, kBlock>& Signs() {
  static const std::array<uint32_t, kBlock>& signs = *[] {
    auto* const made = new std::array<uint32_t, kBlock>;
    const CounterRandom random(uint64_t{0});
    for (uint64_t i = 0; i < kBlock; ++i) (*made)[i] = random.Draw(i) & 0x80000000;
    return made;
  }();
  return signs;
}

float Signed(float value, uint32_t sign) { return BitCast<float>(BitCast<uint32_t>(value) ^ sign); }

// `rotated` becomes 64 times the rotated block.
void RotateForth(const float* values, float* rotated) {
  float scratch[kBlock];
  const auto& signs = Signs();
  for (uint64_t i = 0; i < kBlock; ++i) scratch[i] = Signed(values[i], signs[i]);
  ActiveRoundingLoops().rotate(rotated, scratch);
}

void EncodeBlock(uint8_t* out, const float* values, uint64_t index, const CounterRandom& random) {
  const RoundingLoops& loops = ActiveRoundingLoops();
  float rotated[kBlock];
  uint8_t levels[kBlock];
  RotateForth(values, rotated);
  loops.levels(levels, rotated, kBlock, {random, 2.0f / 64, kMost, kMost + 1}, index);
  loops.pack(out, levels, kBlock / 2);
}

// Codes of a whole block take so many bits each: 4 to 8, or 16.
uint32_t BitsFor(uint64_t workers) {
  uint32_t bits = 4;
  while (bits < 8 && (uint64_t{1} << bits) < 2 * kMost * workers + 2) ++bits;
  return (uint64_t{1} << bits) < 2 * kMost * workers + 2 ? 16 : bits;
}

// Eight bytes become as many as `bits`, and back: in pairs, in fours, in eights.
template <uint32_t bits>
uint64_t Narrow(uint64_t codes) {
  constexpr uint32_t gap = 8 - bits;
  codes = (codes & 0x00ff00ff00ff00ff) | (codes & 0xff00ff00ff00ff00) >> gap;
  codes = (codes & 0x0000ffff0000ffff) | (codes & 0xffff0000ffff0000) >> 2 * gap;
  return (codes & 0x00000000ffffffff) | (codes & 0xffffffff00000000) >> 4 * gap;
}

template <uint32_t bits>
uint64_t Widen(uint64_t packed) {
  constexpr uint32_t gap = 8 - bits;
  constexpr uint64_t four = (uint64_t{1} << 4 * bits) - 1;
  constexpr uint64_t two = ((uint64_t{1} << 2 * bits) - 1) * 0x0000000100000001;
  constexpr uint64_t one = ((uint64_t{1} << bits) - 1) * 0x0001000100010001;
  packed = (packed & four) | (packed & four << 4 * bits) << 4 * gap;
  packed = (packed & two) | (packed & two << 2 * bits) << 2 * gap;
  return (packed & one) | (packed & one << bits) << gap;
}

// Those of a whole block. All but the last eight may touch bytes of the next ones.
template <uint32_t bits>
void PackCodes(const uint16_t* codes, uint8_t* out) {
  uint8_t bytes[kBlock];
  for (uint64_t i = 0; i < kBlock; ++i) bytes[i] = static_cast<uint8_t>(codes[i]);
  uint64_t packed = 0;
  for (uint64_t i = 0; i < kBlock; i += 8, out += bits) {
    packed = Narrow<bits>(LoadElement<uint64_t>(bytes + i));
    if (i + 8 < kBlock) StoreElement(out, packed);
  }
  std::memcpy(out - bits, &packed, bits);
}

template <uint32_t bits>
void UnpackCodes(const uint8_t* data, uint16_t* codes) {
  uint8_t bytes[kBlock];
  for (uint64_t i = 0; i + 8 < kBlock; i += 8, data += bits)
    StoreElement(bytes + i, Widen<bits>(LoadElement<uint64_t>(data)));
  uint64_t last = 0;
  std::memcpy(&last, data, bits);
  StoreElement(bytes + kBlock - 8, Widen<bits>(last));
  for (uint64_t i = 0; i < kBlock; ++i) codes[i] = bytes[i];
}

struct Packing {
  void (*pack)(const uint16_t* codes, uint8_t* out);
  void (*unpack)(const uint8_t* data, uint16_t* codes);
};

// For 4 bits and more.
constexpr Packing kPackings[] = {{PackCodes<4>, UnpackCodes<4>},
                                 {PackCodes<5>, UnpackCodes<5>},
                                 {PackCodes<6>, UnpackCodes<6>},
                                 {PackCodes<7>, UnpackCodes<7>},
                                 {PackCodes<8>, UnpackCodes<8>}};

}  // namespace

ThcCodec::ThcCodec(const ThcJob& job) : BlockCodec(kBlock), job_(job) {}

std::string ThcCodec::NameFor(const ThcJob& job) {
  return "thc:average=" + std::to_string(static_cast<int>(job.is_average)) +
         ",workers=" + std::to_string(job.workers);
}

std::string ThcCodec::SumCodec() const { return ThcSumCodec(job_).name(); }

uint64_t ThcCodec::BlockBytes(uint64_t elements) const {
  return elements == kBlock ? kBlock / 2 : elements;
}

void ThcCodec::EncodeBlocks(const float* values, uint64_t elements, uint64_t first,
                            const CounterRandom& random, uint8_t* out) const {
  uint64_t done = 0;
  for (; done + kBlock <= elements; done += kBlock, out += kBlock / 2)
    EncodeBlock(out, values + done, first * kBlock + done, random);
  ActiveRoundingLoops().levels(out, values + done, elements - done,
                               {random, 2, kMostOfShort, kMostOfShort + 1}, first * kBlock + done);
}

void ThcCodec::DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                            float* target) const {
  const RoundingLoops& loops = ActiveRoundingLoops();
  const auto put = loops.put_levels[mode == DecodeMode::kAdd ? 1 : 0];
  uint64_t done = 0;
  for (; done + kBlock <= elements; done += kBlock, data += kBlock / 2) {
    uint8_t codes[kBlock];
    loops.unpack(codes, data, kBlock / 2);
    put(target + done, codes, kBlock, kMost + 1);
  }
  put(target + done, data, elements - done, kMostOfShort + 1);
}

ThcSumCodec::ThcSumCodec(const ThcJob& job)
    : BlockCodec(kBlock),
      job_(job),
      divisor_(job.is_average ? static_cast<float>(job.workers) : 1),
      bits_(BitsFor(job.workers)) {}

std::string ThcSumCodec::name() const {
  return "thc_sum:average=" + std::to_string(static_cast<int>(job_.is_average)) +
         ",workers=" + std::to_string(job_.workers);
}

uint64_t ThcSumCodec::BlockBytes(uint64_t elements) const {
  return elements == kBlock ? kBlock / 8 * bits_ : elements * sizeof(uint16_t);
}

void ThcSumCodec::EncodeBlocks(const float* values, uint64_t elements, uint64_t,
                               const CounterRandom&, uint8_t* out) const {
  for (uint64_t done = 0; done < elements; done += kBlock) {
    const uint64_t count = std::min(kBlock, elements - done);
    uint16_t codes[kBlock];
    CodesOf(values + done, count, count == kBlock ? kMost : kMostOfShort, codes);
    if (count < kBlock || bits_ == 16) {
      std::memcpy(out, codes, count * sizeof(uint16_t));
    } else {
      kPackings[bits_ - 4].pack(codes, out);
    }
    out += BlockBytes(count);
  }
}

// A sum of levels, each up to `most`, is divided: multiplied and rounded it is what it was.
void ThcSumCodec::CodesOf(const float* values, uint64_t count, int32_t most,
                          uint16_t* codes) const {
  const auto top = static_cast<int32_t>(most * job_.workers);
  const auto limit = static_cast<float>(top);
  const float divisor = divisor_;
  for (uint64_t i = 0; i < count; ++i) {
    const float exact = values[i] * divisor;
    const int32_t mask = ((BitCast<int32_t>(exact) & 0x7fffffff) - 0x7f800000) >> 31;
    float value = exact < limit ? exact : limit;  // that of a NaN
    value = value > -limit ? value : -limit;
    codes[i] = static_cast<uint16_t>((RoundNearest(value) + top + 1) & mask);
  }
}

void ThcSumCodec::DecodeBlock(const uint8_t* data, DecodeMode mode, float* target) const {
  const RoundingLoops& loops = ActiveRoundingLoops();
  uint16_t codes[kBlock];
  if (bits_ == 16) {
    std::memcpy(codes, data, sizeof(codes));
  } else {
    kPackings[bits_ - 4].unpack(data, codes);
  }
  float levels[kBlock], sums[kBlock];
  loops.store_levels(levels, codes, kBlock, static_cast<int32_t>(kMost * job_.workers) + 1);
  // Exact up to the division: whole numbers below 2^24.
  loops.rotate(sums, levels);
  loops.put_quotients[mode == DecodeMode::kAdd ? 1 : 0](target, sums, Signs().data(), kBlock,
                                                        2 * 64 * divisor_);
}

void ThcSumCodec::DecodeShortBlock(const uint8_t* data, uint64_t elements, DecodeMode mode,
                                   float* target) const {
  const RoundingLoops& loops = ActiveRoundingLoops();
  static constexpr uint32_t kNoSigns[kBlock] = {};
  uint16_t codes[kBlock];
  float levels[kBlock];
  std::memcpy(codes, data, elements * sizeof(uint16_t));
  loops.store_levels(levels, codes, elements,
                     static_cast<int32_t>(kMostOfShort * job_.workers) + 1);
  loops.put_quotients[mode == DecodeMode::kAdd ? 1 : 0](target, levels, kNoSigns, elements,
                                                        2 * divisor_);
}

void ThcSumCodec::DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                               float* target) const {
  uint64_t done = 0;
  for (; done + kBlock <= elements; done += kBlock, data += BlockBytes(kBlock))
    DecodeBlock(data, mode, target + done);
  DecodeShortBlock(data, elements - done, mode, target + done);
}

}  // namespace byteps

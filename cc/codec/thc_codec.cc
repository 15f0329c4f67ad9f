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
constexpr uint64_t kWords = kBlock / 8;
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

// Codes of a whole block, of up to 8 bits. Each eight of them are `bits` bytes; a word is stored
// and loaded with bytes of the next ones, but for the last.
void PackCodes(const uint16_t* codes, uint32_t bits, uint8_t* out) {
  uint64_t words[kWords];
  ActiveRoundingLoops().narrow(words, codes, kWords, bits);
  for (uint64_t i = 0; i + 1 < kWords; ++i) StoreElement(out + i * bits, words[i]);
  std::memcpy(out + (kWords - 1) * bits, &words[kWords - 1], bits);
}

void UnpackCodes(const uint8_t* data, uint32_t bits, uint16_t* codes) {
  uint64_t words[kWords] = {};
  for (uint64_t i = 0; i + 1 < kWords; ++i) words[i] = LoadElement<uint64_t>(data + i * bits);
  std::memcpy(&words[kWords - 1], data + (kWords - 1) * bits, bits);
  ActiveRoundingLoops().widen(codes, words, kWords, bits);
}

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
    const auto top = static_cast<int32_t>((count == kBlock ? kMost : kMostOfShort) * job_.workers);
    uint16_t codes[kBlock];
    // A sum of levels is divided: multiplied and rounded it is what it was.
    ActiveRoundingLoops().codes(codes, values + done, count, divisor_, top);
    if (count < kBlock || bits_ == 16) {
      std::memcpy(out, codes, count * sizeof(uint16_t));
    } else {
      PackCodes(codes, bits_, out);
    }
    out += BlockBytes(count);
  }
}

void ThcSumCodec::DecodeBlock(const uint8_t* data, DecodeMode mode, float* target) const {
  const RoundingLoops& loops = ActiveRoundingLoops();
  uint16_t codes[kBlock];
  if (bits_ == 16) {
    std::memcpy(codes, data, sizeof(codes));
  } else {
    UnpackCodes(data, bits_, codes);
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
  if (done < elements) DecodeShortBlock(data, elements - done, mode, target + done);
}

}  // namespace byteps

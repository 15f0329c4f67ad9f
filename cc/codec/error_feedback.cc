#include "cc/codec/error_feedback.h"

#include <algorithm>

#include "cc/codec/scale.h"

namespace byteps {
namespace {

using namespace codec_internal;

// Elements at a time: they stay in a core's cache. A multiple of the block of every codec that does
// not take whole parts.
constexpr uint64_t kPiece = 4096;

// Scales are rounded up: from here on a finite element might decode to infinity.
constexpr uint32_t kTooLargeBits = 0x7f000000;  // 2^127

void Add(const float* values, const float* residual, uint64_t count, float* sums) {
  for (uint64_t i = 0; i < count; ++i) sums[i] = values[i] + residual[i];
}

// Whether the residual of values + residual will be finite.
bool CanFeedBack(const float* values, const float* residual, uint64_t elements) {
  float sums[kPiece];
  for (uint64_t done = 0; done < elements; done += kPiece) {
    const uint64_t count = std::min(kPiece, elements - done);
    Add(values + done, residual + done, count, sums);
    if (LargestBits(sums, count) >= kTooLargeBits) return false;
  }
  return true;
}

void EncodeAndKeep(const BlockCodec& codec, const float* values, uint64_t elements,
                   const CounterRandom& random, float* residual, uint8_t* out) {
  const uint64_t piece = codec.takes_whole_parts() ? elements : kPiece;
  for (uint64_t done = 0; done < elements; done += piece) {
    const uint64_t count = std::min(piece, elements - done);
    float* const sums = residual + done;
    Add(values + done, sums, count, sums);
    codec.EncodeBlocks(sums, count, done / codec.block_elements(), random, out);
    codec.SubtractBlocks(out, count, sums);
    out += codec.EncodedBytes(count);
  }
}

void EncodeOnly(const BlockCodec& codec, const float* values, uint64_t elements,
                const CounterRandom& random, const float* residual, uint8_t* out) {
  std::vector<float> sums(elements);
  Add(values, residual, elements, sums.data());
  codec.EncodeBlocks(sums.data(), elements, 0, random, out);
}

}  // namespace

std::shared_ptr<const uint8_t[]> ErrorFeedback::Encode(const BlockCodec& codec, const float* values,
                                                       uint64_t elements, const PartSeed& seed) {
  MutexLock lock(mutex_);
  if (encoded_ != nullptr && seed.round <= round_) return encoded_;
  residual_.resize(elements);
  // Uninitialized.
  std::shared_ptr<uint8_t[]> encoded(new uint8_t[codec.EncodedBytes(elements)]);
  const CounterRandom random(seed);
  if (CanFeedBack(values, residual_.data(), elements)) {
    EncodeAndKeep(codec, values, elements, random, residual_.data(), encoded.get());
  } else {
    EncodeOnly(codec, values, elements, random, residual_.data(), encoded.get());
  }
  round_ = seed.round;
  encoded_ = std::move(encoded);
  return encoded_;
}

void ErrorFeedback::Read(uint64_t elements, float* residual) const {
  MutexLock lock(mutex_);
  if (residual_.empty())
    std::fill_n(residual, elements, 0.0f);
  else
    std::copy_n(residual_.data(), elements, residual);
}

void ErrorFeedback::Begin(const float* residual, uint64_t elements) {
  MutexLock lock(mutex_);
  residual_.assign(residual, residual + elements);
}

}  // namespace byteps

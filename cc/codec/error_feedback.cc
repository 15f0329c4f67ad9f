#include "cc/codec/error_feedback.h"

#include <algorithm>

#include "cc/codec/scale.h"

namespace byteps {
namespace {

using namespace codec_internal;

// Elements at a time: they stay in a core's cache. A multiple of every codec's block.
constexpr uint64_t kPiece = 4096;

// Scales are rounded up: from here on a finite element might decode to infinity.
constexpr uint32_t kTooLargeBits = 0x7f000000;  // 2^127

void Add(const float* values, const float* residual, uint64_t count, float* sums) {
  for (uint64_t i = 0; i < count; ++i) sums[i] = values[i] + residual[i];
}

void Subtract(const float* decoded, const float* sums, uint64_t count, float* residual) {
  for (uint64_t i = 0; i < count; ++i) residual[i] = sums[i] - decoded[i];
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

void EncodePieces(const BlockCodec& codec, const float* values, uint64_t elements,
                  const PartSeed& seed, bool feeds_back, float* residual, uint8_t* out) {
  const CounterRandom random(seed);
  float sums[kPiece];
  float decoded[kPiece];
  for (uint64_t done = 0; done < elements; done += kPiece) {
    const uint64_t count = std::min(kPiece, elements - done);
    Add(values + done, residual + done, count, sums);
    codec.EncodeBlocks(sums, count, done / codec.block_elements(), random, out);
    if (feeds_back) {
      codec.DecodeBlocks(out, count, DecodeMode::kStore, decoded);
      Subtract(decoded, sums, count, residual + done);
    }
    out += codec.EncodedBytes(count);
  }
}

}  // namespace

std::shared_ptr<const uint8_t[]> ErrorFeedback::Encode(const BlockCodec& codec, const float* values,
                                                       uint64_t elements, const PartSeed& seed) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (encoded_ != nullptr && seed.round <= round_) return encoded_;
  residual_.resize(elements);
  // Uninitialized.
  std::shared_ptr<uint8_t[]> encoded(new uint8_t[codec.EncodedBytes(elements)]);
  const bool feeds_back = CanFeedBack(values, residual_.data(), elements);
  EncodePieces(codec, values, elements, seed, feeds_back, residual_.data(), encoded.get());
  round_ = seed.round;
  encoded_ = std::move(encoded);
  return encoded_;
}

}  // namespace byteps

// topk: of a part's n elements the k = max(1, ceil(ratio * n)) of the largest magnitude, exactly;
// of equal ones those in front. The others become zero. On the wire: their k float32 values in the
// order of their indices, then the indices (codec/sorted_indices.h).
//
// The values travel as they are, so that NaN and infinity, which count as the largest, arrive. It
// needs error feedback to converge; without is for comparisons.
#pragma once

#include <string>

#include "cc/codec/block_codec.h"

namespace byteps {

class TopKCodec : public BlockCodec {
 public:
  // 0 < ratio <= 1.
  TopKCodec(double ratio, bool feedback)
      : BlockCodec(kWholePart), ratio_(ratio), feedback_(feedback) {}

  CodecId id() const override { return CodecId::kTopK; }
  std::string name() const override;
  bool wants_feedback() const override { return feedback_; }
  uint64_t BlockBytes(uint64_t elements) const override;
  void EncodeBlocks(const float* values, uint64_t elements, uint64_t first,
                    const CounterRandom& random, uint8_t* out) const override;
  Status CheckBlocks(const uint8_t* data, uint64_t elements) const override;
  // Adding touches k elements.
  void DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                    float* target) const override;
  void SubtractBlocks(const uint8_t* data, uint64_t elements, float* target) const override;
  // Of many workers' elements few are zero.
  std::string SumCodec() const override { return "int8:block=32,stochastic=0"; }

 private:
  const double ratio_;
  const bool feedback_;
};

}  // namespace byteps

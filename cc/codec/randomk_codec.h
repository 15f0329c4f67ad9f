// randomk: k = max(1, ceil(ratio * n)) of a part's n elements, one of each of k sections of equal
// length, which random numbers choose. The others become zero. On the wire: the 64 bits that those
// numbers follow from, then the elements as float32, in the order of their sections.
//
// With error feedback they are sent as they are; without, times the length of their section, so
// that they are right on average. A section in which anything is not finite becomes NaN.
#pragma once

#include <string>

#include "cc/codec/block_codec.h"

namespace byteps {

class RandomKCodec : public BlockCodec {
 public:
  // 0 < ratio <= 1.
  RandomKCodec(double ratio, bool feedback)
      : BlockCodec(kWholePart), ratio_(ratio), feedback_(feedback) {}

  CodecId id() const override { return CodecId::kRandomK; }
  bool is_stochastic() const override { return true; }
  std::string name() const override;
  bool wants_feedback() const override { return feedback_; }
  uint64_t BlockBytes(uint64_t elements) const override;
  void EncodeBlocks(const float* values, uint64_t elements, uint64_t first,
                    const CounterRandom& random, uint8_t* out) const override;
  // Adding touches k elements.
  void DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                    float* target) const override;
  void SubtractBlocks(const uint8_t* data, uint64_t elements, float* target) const override;
  // Each worker has chosen others.
  std::string SumCodec() const override { return "int8:block=32,stochastic=0"; }

 private:
  const double ratio_;
  const bool feedback_;
};

}  // namespace byteps

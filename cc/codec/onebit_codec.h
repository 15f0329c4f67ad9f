// onebit: the sign of each element, 1 for what is less than zero, in bit i % 8 of byte i / 8; in
// front of each 4096 elements the float32 mean of their magnitudes. It needs error feedback to
// converge; without is for comparisons.
#pragma once

#include <string>

#include "cc/codec/block_codec.h"

namespace byteps {

class OneBitCodec : public BlockCodec {
 public:
  explicit OneBitCodec(bool feedback) : BlockCodec(4096), feedback_(feedback) {}

  CodecId id() const override { return CodecId::kOneBit; }
  std::string name() const override {
    return "onebit:feedback=" + std::to_string(static_cast<int>(feedback_));
  }
  bool wants_feedback() const override { return feedback_; }
  uint64_t BlockBytes(uint64_t elements) const override { return 4 + (elements + 7) / 8; }
  void EncodeBlocks(const float* values, uint64_t elements, uint64_t first,
                    const CounterRandom& random, uint8_t* out) const override;
  void DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                    float* target) const override;
  // A second rounding to signs would lose as much again, and servers keep no residual.
  std::string SumCodec() const override { return "int8:block=32,stochastic=0"; }

 private:
  const bool feedback_;
};

}  // namespace byteps

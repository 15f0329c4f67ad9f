// int4: blocks with a bfloat16 scale in front, stochastically rounded to -7 .. 7. A byte holds two
// elements, each plus 8, the first one in its low half.
#pragma once

#include <string>

#include "cc/codec/block_codec.h"

namespace byteps {

class Int4Codec : public BlockCodec {
 public:
  Int4Codec(uint64_t block, bool feedback) : BlockCodec(block), feedback_(feedback) {}

  CodecId id() const override { return CodecId::kInt4; }
  bool is_stochastic() const override { return true; }
  std::string name() const override {
    return "int4:block=" + std::to_string(block_elements()) +
           ",feedback=" + std::to_string(static_cast<int>(feedback_));
  }
  bool wants_feedback() const override { return feedback_; }
  uint64_t BlockBytes(uint64_t elements) const override { return 2 + (elements + 1) / 2; }
  void EncodeBlocks(const float* values, uint64_t elements, uint64_t first,
                    const CounterRandom& random, uint8_t* out) const override;
  void DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                    float* target) const override;
  // A second rounding to 4 bits would double the error.
  std::string SumCodec() const override { return "int8:block=32,stochastic=0"; }

 private:
  const bool feedback_;
};

}  // namespace byteps

// fp8: blocks of e4m3 numbers (4 bits of exponent, 3 of mantissa) with a bfloat16 scale in front,
// rounded to nearest.
#pragma once

#include <string>

#include "cc/codec/block_codec.h"

namespace byteps {

class Fp8Codec : public BlockCodec {
 public:
  explicit Fp8Codec(uint64_t block) : BlockCodec(block) {}

  CodecId id() const override { return CodecId::kFloat8; }
  std::string name() const override { return "fp8:block=" + std::to_string(block_elements()); }
  uint64_t BlockBytes(uint64_t elements) const override { return 2 + elements; }
  void EncodeBlocks(const float* values, uint64_t elements, uint64_t first,
                    const CounterRandom& random, uint8_t* out) const override;
  void DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                    float* target) const override;
};

}  // namespace byteps

// natural: each element becomes one of the two powers of two that enclose its magnitude, or 0, at
// random, so that it is right on average. Of each 4096 elements the float32 exponents come first, a
// byte each, then the signs: bit i % 8 of byte i / 8. What is not finite becomes an infinity.
#ifndef TF_BYTEPS_CC_CODEC_NATURAL_CODEC_H_
#define TF_BYTEPS_CC_CODEC_NATURAL_CODEC_H_

#include <string>

#include "cc/codec/block_codec.h"

namespace byteps {

class NaturalCodec : public BlockCodec {
 public:
  NaturalCodec() : BlockCodec(4096) {}

  CodecId id() const override { return CodecId::kNatural; }
  bool is_stochastic() const override { return true; }
  std::string name() const override { return "natural"; }
  uint64_t BlockBytes(uint64_t elements) const override { return elements + (elements + 7) / 8; }
  void EncodeBlocks(const float* values, uint64_t elements, uint64_t first,
                    const CounterRandom& random, uint8_t* out) const override;
  void DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                    float* target) const override;
  // Fewer bits, and smaller errors.
  std::string SumCodec() const override { return "int8:block=32,stochastic=0"; }
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_CODEC_NATURAL_CODEC_H_

// int8: blocks with a bfloat16 scale in front. Nearest rounding for short blocks; long ones need
// stochastic rounding, or an optimizer such as Adam loses their small elements.
#pragma once

#include <string>

#include "cc/codec/block_codec.h"
#include "cc/codec/scale.h"

namespace byteps {

class Int8Codec : public BlockCodec {
 public:
  // `block` is a multiple of 32.
  Int8Codec(uint64_t block, bool stochastic) : BlockCodec(block), stochastic_(stochastic) {}

  bool is_stochastic() const override { return stochastic_; }
  CodecId id() const override { return CodecId::kInt8; }
  std::string name() const override;
  uint64_t BlockBytes(uint64_t elements) const override {
    return codec_internal::kScaleBytes + elements;
  }
  void EncodeBlocks(const float* values, uint64_t elements, uint64_t first,
                    const CounterRandom& random, uint8_t* out) const override;
  void DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                    float* target) const override;

 private:
  const bool stochastic_;
};

}  // namespace byteps

// dithering: blocks with a float32 norm in front, whose elements are rounded to one of the levels
// around them at random, so that they are right on average. Levels are shares of the norm: evenly
// spaced from 0 to 1, or 0 and powers of two up to 1. An element has one bit for its sign, above
// those for its level; eight elements follow each other in as many bytes as an element has bits,
// the first one in the lowest.
#pragma once

#include <array>
#include <string>

#include "cc/codec/block_codec.h"

namespace byteps {

struct DitheringOptions {
  uint32_t bits = 4;  // of an element, 2 to 8
  uint64_t block = 256;
  bool is_l2 = false;       // the norm is the square root of the sum of squares, not the largest
  bool is_natural = false;  // levels are powers of two
};

class DitheringCodec : public BlockCodec {
 public:
  explicit DitheringCodec(const DitheringOptions& options);

  CodecId id() const override { return CodecId::kDithering; }
  bool is_stochastic() const override { return true; }
  std::string name() const override;
  uint64_t BlockBytes(uint64_t elements) const override {
    return sizeof(float) + (elements * options_.bits + 7) / 8;
  }
  void EncodeBlocks(const float* values, uint64_t elements, uint64_t first,
                    const CounterRandom& random, uint8_t* out) const override;
  void DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                    float* target) const override;
  // A second rounding to so few bits would double the error.
  std::string SumCodec() const override { return "int8:block=32,stochastic=0"; }

 private:
  void EncodeBlock(uint8_t* out, const float* values, uint64_t elements, uint64_t index,
                   const CounterRandom& random) const;
  template <DecodeMode mode>
  void DecodeBlock(float* target, const uint8_t* data, uint64_t elements) const;
  uint32_t LevelOf(float share, float uniform) const;

  const DitheringOptions options_;
  const uint32_t levels_;           // besides 0
  std::array<float, 256> decoded_;  // what an element stands for, in units of the block's step
};

}  // namespace byteps

// float16, bfloat16, and float32 as it is. The conversions are those of cc/sum.
#pragma once

#include <string>

#include "cc/base/dtype.h"
#include "cc/codec/block_codec.h"

namespace byteps {

class CastCodec : public BlockCodec {
 public:
  // kRaw, kFloat16 or kBFloat16.
  explicit CastCodec(CodecId id);

  CodecId id() const override { return id_; }
  std::string name() const override;
  uint64_t BlockBytes(uint64_t elements) const override { return elements * DTypeSize(dtype_); }
  void EncodeBlocks(const float* values, uint64_t elements, uint64_t first,
                    const CounterRandom& random, uint8_t* out) const override;
  void DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                    float* target) const override;

 private:
  const CodecId id_;
  const DType dtype_;
};

}  // namespace byteps

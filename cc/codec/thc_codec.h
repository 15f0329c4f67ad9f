// thc: 4 bits for an element, in units that all workers share. So servers add whole numbers, and
// sums are exact: they do not depend on the order of arrival. After "THC: Accelerating Distributed
// Deep Learning Using Tensor Homomorphic Compression" (NSDI'24).
//
// Who encodes has divided each 4096 elements of a tensor by the same number on all workers: the
// largest of their root mean squares (tf_byteps/ops/compression). A block of 4096 is rotated by
// a random Hadamard matrix, which makes a normal distribution of any: few elements exceed 3.5. They
// are rounded, at random, to a half and become -7 .. 7, plus 8; two are in a byte, the first one in
// its low half. A last, shorter block is not rotated: one byte for each element, -127 .. 127, plus
// 128. No element of a block exceeds 64, the root of 4096.
//
// thc_sum: whole numbers again, up to n workers times that. In blocks of 4096 each has as many bits
// as 2 * 7 n + 2 values need, 16 if that is more than 8; in a shorter one 16. The first of eight is
// in the lowest bits.
//
// 0 stands for what is not finite. Servers have rotated elements; who decodes a sum rotates back.
#pragma once

#include <string>

#include "cc/codec/block_codec.h"

namespace byteps {

// Of whom a sum is.
struct ThcJob {
  uint64_t workers = 1;     // at most 256, so that a sum has at most 16 bits
  bool is_average = false;  // it is divided by their number
};

class ThcCodec : public BlockCodec {
 public:
  explicit ThcCodec(const ThcJob& job);

  CodecId id() const override { return CodecId::kThc; }
  bool is_stochastic() const override { return true; }
  std::string name() const override { return NameFor(job_); }
  std::string NameInJob(uint64_t workers, bool is_average) const override {
    return NameFor({workers, is_average});
  }
  uint64_t BlockBytes(uint64_t elements) const override;
  void EncodeBlocks(const float* values, uint64_t elements, uint64_t first,
                    const CounterRandom& random, uint8_t* out) const override;
  // Of rotated elements, in halves.
  void DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                    float* target) const override;
  std::string SumCodec() const override;

 private:
  static std::string NameFor(const ThcJob& job);

  const ThcJob job_;
};

class ThcSumCodec : public BlockCodec {
 public:
  explicit ThcSumCodec(const ThcJob& job);

  const ThcJob& job() const { return job_; }
  float divisor() const { return divisor_; }
  uint32_t element_bits() const { return bits_; }  // in a whole block

  CodecId id() const override { return CodecId::kThcSum; }
  std::string name() const override;
  uint64_t BlockBytes(uint64_t elements) const override;
  // Of rotated elements, in halves.
  void EncodeBlocks(const float* values, uint64_t elements, uint64_t first,
                    const CounterRandom& random, uint8_t* out) const override;
  void DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                    float* target) const override;

 private:
  void DecodeBlock(const uint8_t* data, DecodeMode mode, float* target) const;
  void DecodeShortBlock(const uint8_t* data, uint64_t elements, DecodeMode mode,
                        float* target) const;

  const ThcJob job_;
  const float divisor_;
  const uint32_t bits_;  // of an element of a whole block
};

}  // namespace byteps

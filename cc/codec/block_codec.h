// BlockCodec: codecs that encode blocks of a fixed number of elements into a fixed number of bytes,
// one block after the other. The last block of a part may be shorter; of some codecs a part is one
// block.
//
// A block has all that its decoding needs, its scale included, so that a receiver keeps no more
// than one incomplete block.
#pragma once

#include <memory>
#include <string>

#include "cc/codec/codec.h"
#include "cc/codec/random.h"

namespace byteps {

// See Codec for threads and memory.
class BlockCodec : public Codec {
 public:
  uint64_t MaxEncodedBytes(uint64_t elements) const final;
  EncodedPart Encode(const float* values, uint64_t elements, const PartSeed& seed,
                     uint8_t* out) const final;
  Status Receive(const EncodedPart& part, DecodeMode mode, float* target,
                 std::unique_ptr<PartReceiver>* receiver) const final;

  uint64_t block_elements() const { return block_elements_; }

  // Whether a part is one block, however long.
  bool takes_whole_parts() const { return block_elements_ == kWholePart; }

  // Bytes of one block of `elements`, at most block_elements() of them.
  virtual uint64_t BlockBytes(uint64_t elements) const = 0;

  // Bytes of a part; may exceed the elements' own bytes for very short ones, which Encode then
  // leaves raw.
  uint64_t EncodedBytes(uint64_t elements) const;

  // Whether EncodeBlocks draws random numbers.
  virtual bool is_stochastic() const { return false; }

  // Consecutive blocks that begin with block `first`. All but the part's last one are whole.
  virtual void EncodeBlocks(const float* values, uint64_t elements, uint64_t first,
                            const CounterRandom& random, uint8_t* out) const = 0;
  // INVALID_ARGUMENT for bytes that no encoder writes, and which must not be decoded. Only of
  // codecs that take whole parts are there such bytes.
  virtual Status CheckBlocks(const uint8_t* data, uint64_t elements) const;
  virtual void DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                            float* target) const = 0;
  // target -= decoded.
  virtual void SubtractBlocks(const uint8_t* data, uint64_t elements, float* target) const;

 protected:
  // More elements than any part has.
  static constexpr uint64_t kWholePart = uint64_t{1} << 48;

  explicit BlockCodec(uint64_t block_elements) : block_elements_(block_elements) {}

  // DecodeBlocks by a function of one block, whose elements it puts into, or adds to, `target`.
  using BlockDecoder = void (*)(float* target, const uint8_t* data, uint64_t elements);
  void DecodeEachBlock(BlockDecoder decode, const uint8_t* data, uint64_t elements,
                       float* target) const;

 private:
  const uint64_t block_elements_;
};

}  // namespace byteps

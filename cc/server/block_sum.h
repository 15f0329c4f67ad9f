// BlockSum: the sum of one round of one part, made of blocks that are small enough for a core's
// cache.
//
// Nobody waits for anybody: the first contribution to a block is received straight into the sum,
// the next ones into scratch memory of their own and added from there. Who finds a block busy
// leaves its scratch to the thread that is at work there, and goes on. The last contribution to a
// block also divides and rounds it, while it is still in the cache.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/tensor_description.h"
#include "cc/codec/block_codec.h"
#include "cc/server/buffer.h"
#include "cc/server/scratch.h"
#include "cc/van/van.h"

namespace byteps {

// Thread-safe. Contributions hold a reference, so that one that still arrives when its round has
// failed writes to memory that exists, and which nobody reads.
class BlockSum {
 public:
  static constexpr int32_t kUnknown = 0;

  struct Options {
    DType dtype = DType::kFloat32;
    ExchangeKind kind = ExchangeKind::kSum;  // kSum, kMin, kMax or kProduct
    double divisor = 1;
    int32_t num_contributions = 1;  // the last one divides; kUnknown: FinishAll does
    uint64_t element_count = 0;
    // The form of contributions, which are decoded into the sum while they are in the cache; null:
    // as they are, or each in a form of its own. Lives for ever. Its blocks must divide those of
    // the sum, or be the whole part: then the sum is one block, and takes what ContributeAll gives
    // it.
    const BlockCodec* codec = nullptr;
    // Holds AccumulatorDType(dtype).
    std::shared_ptr<Buffer> accumulator;
    // Holds dtype; the accumulator itself if the types are the same.
    std::shared_ptr<Buffer> result;
    std::shared_ptr<ScratchPool> scratch;
  };

  explicit BlockSum(Options options);

  // In what follows `form` is the contribution's, null: as it is.

  // Bytes on the wire of a block, at most kScratchBytes: the last one may be shorter.
  size_t BlockBytes(size_t block, const BlockCodec* form) const;

  // If the block is untouched: the memory of its sum, for the caller alone until EndClaim. Else, or
  // if bytes must be decoded, null: then Contribute takes the caller's bytes.
  uint8_t* Claim(size_t block, const BlockCodec* form);
  void EndClaim(size_t block);

  // Adds a whole block of a contribution from where it is; false, and nothing done, if another
  // thread is at work on the block.
  bool ContributeInPlace(size_t block, const uint8_t* wire, const BlockCodec* form);

  // Takes a whole block of a contribution.
  void Contribute(size_t block, std::unique_ptr<Scratch> wire, const BlockCodec* form);

  // Takes a whole contribution at once, while no other one is being taken in. The codec's
  // CheckBlocks has found it right.
  void ContributeAll(const uint8_t* wire, const BlockCodec* form);

  // Divides and rounds, where nobody knew which contribution would be the last one.
  void FinishAll(double divisor) const;

  ScratchPool& scratch() { return *options_.scratch; }

  // Complete when EndClaim or Contribute has returned for every block of every contribution, and
  // those calls have been ordered before this one.
  const std::shared_ptr<Buffer>& result() const { return options_.result; }

  // That of all contributions, see Options.
  const BlockCodec* codec() const { return options_.codec; }

 private:
  struct Waiting {
    std::unique_ptr<Scratch> wire;
    const BlockCodec* form = nullptr;
  };

  struct Block {
    int32_t contributions = 0;  // that are in the sum
    bool busy = false;          // a thread is at work; it also takes what is left in `waiting`
    std::vector<Waiting> waiting;
  };

  uint64_t BlockElements(size_t block) const;
  // Bytes on the wire of so many elements, from the begin of a block on.
  uint64_t WireBytes(uint64_t elements, const BlockCodec* form) const;
  void Combine(size_t index, int32_t contributions_before, const uint8_t* wire,
               const BlockCodec* form) const;
  void FinishPiece(uint64_t first_element, uint64_t count, double divisor) const;
  void Leave(size_t block);

  const Options options_;
  const size_t wire_size_;
  const size_t accumulator_size_;
  const uint64_t block_elements_;
  const size_t block_count_;
  Mutex mutex_;  // never held while bytes are touched
  // Their memory belongs to the thread that made them busy.
  std::vector<Block> blocks_ BYTEPS_GUARDED_BY(mutex_);
};

// Receives one worker's contribution to a sum.
class BlockSink : public PayloadSink {
 public:
  BlockSink(std::shared_ptr<BlockSum> sum, const BlockCodec* form)
      : sum_(std::move(sum)), form_(form) {}
  explicit BlockSink(std::shared_ptr<BlockSum> sum) : sum_(std::move(sum)), form_(sum_->codec()) {}
  ~BlockSink() override { sum_->scratch().Return(std::move(scratch_)); }

  Span Prepare(uint64_t remaining) override;
  void Commit(size_t bytes) override;
  size_t Take(const void* data, size_t bytes, uint64_t remaining) override;

 private:
  const std::shared_ptr<BlockSum> sum_;
  const BlockCodec* const form_;
  size_t block_ = 0;          // the one that is being received
  uint8_t* place_ = nullptr;  // its memory; null before its first byte
  bool claimed_ = false;      // it is the sum's
  size_t block_bytes_ = 0;
  size_t filled_ = 0;
  std::unique_ptr<Scratch> scratch_;
};

}  // namespace byteps

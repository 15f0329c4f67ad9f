// RoundSum: the running sum of a part, which begins anew each round, in memory that earlier rounds
// have used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "cc/codec/narrow.h"
#include "cc/codec/part_forms.h"
#include "cc/server/aggregation.h"
#include "cc/server/block_sum.h"

namespace byteps {

// Not thread-safe; what `sum` returns is.
class RoundSum {
 public:
  // For a part of `element_count` elements. `divisor` and `num_contributions`: see BlockSum.
  // `more_results`: see BufferPool.
  RoundSum(const TensorDescription& tensor, uint64_t element_count, int32_t divisor,
           int32_t num_contributions, const AggregationMemory& memory, size_t more_results = 0)
      : sum_bytes_(element_count * DTypeSize(tensor.dtype)),
        results_(BufferPool::New(sum_bytes_, memory.allocated, memory.registry, more_results)) {
    options_.codec = FormsOf(tensor).push(element_count);
    contribution_bytes_ =
        options_.codec == nullptr ? sum_bytes_ : options_.codec->EncodedBytes(element_count);
    options_.dtype = tensor.dtype;
    options_.kind = tensor.kind;
    options_.divisor = divisor;
    options_.num_contributions = num_contributions;
    options_.element_count = element_count;
    options_.scratch = memory.scratch;
    const DType accumulator = AccumulatorDType(tensor.dtype);
    if (accumulator != tensor.dtype)
      accumulators_ = BufferPool::New(element_count * DTypeSize(accumulator), memory.allocated);
  }

  // Unless the round's has begun.
  Status Begin() {
    if (sum_ != nullptr) return OkStatus();
    BlockSum::Options options = options_;
    BYTEPS_RETURN_IF_ERROR(results_->Acquire(&options.result));
    options.accumulator = options.result;
    if (accumulators_ != nullptr)
      BYTEPS_RETURN_IF_ERROR(accumulators_->Acquire(&options.accumulator));
    sum_ = std::make_shared<BlockSum>(std::move(options));
    return OkStatus();
  }

  // Null if it has not begun: nobody had anything to add.
  const std::shared_ptr<BlockSum>& sum() const { return sum_; }

  // What is in the sum now.
  void Describe(AggregationResult* result) const {
    result->element_count = options_.element_count;
    result->payload_bytes = sum_bytes_;
    if (sum_ == nullptr) return;
    result->payload = sum_->result()->data();
    result->memory = sum_->result();
  }

  // Ends the round.
  void Reset() { sum_ = nullptr; }

  // The most bytes on the wire that one has.
  uint64_t contribution_bytes() const { return contribution_bytes_; }

  // Whether one can only be added when all of it is here.
  bool takes_whole_contributions() const {
    return options_.codec != nullptr && options_.codec->takes_whole_parts();
  }

  // The form of a contribution that is announced in `id` (server/served_tensor.h checks it).
  const BlockCodec* FormOf(CodecId id) const {
    return options_.codec != nullptr || id == CodecId::kRaw ? options_.codec : NarrowForm(id);
  }

  // INVALID_ARGUMENT for bytes that are none, and must not be added.
  Status CheckContribution(const uint8_t* wire) const {
    if (options_.codec == nullptr) return OkStatus();
    return options_.codec->CheckBlocks(wire, options_.element_count);
  }

 private:
  const uint64_t sum_bytes_;
  uint64_t contribution_bytes_;
  const std::shared_ptr<BufferPool> results_;
  std::shared_ptr<BufferPool> accumulators_;  // null if the sum becomes the result
  BlockSum::Options options_;                 // of every round, but for the buffers
  std::shared_ptr<BlockSum> sum_;             // of the running round
};

}  // namespace byteps

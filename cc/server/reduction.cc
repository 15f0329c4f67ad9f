// Sum, average, minimum and maximum.
#include <utility>

#include "cc/server/aggregation.h"
#include "cc/server/block_sum.h"

namespace byteps {
namespace {

class Reduction : public Aggregation {
 public:
  Reduction(const TensorDescription& tensor, uint64_t element_count,
            const Participants& participants, const AggregationMemory& memory)
      : contributions_(participants.contributions),
        payload_bytes_(element_count * DTypeSize(tensor.dtype)),
        results_(BufferPool::New(payload_bytes_, memory.held)) {
    sum_options_.dtype = tensor.dtype;
    sum_options_.kind = tensor.kind;
    sum_options_.divisor = tensor.average ? participants.num_workers : 1;
    sum_options_.num_contributions = participants.contributions;
    sum_options_.element_count = element_count;
    sum_options_.scratch = memory.scratch;
    const DType accumulator = AccumulatorDType(tensor.dtype);
    if (accumulator != tensor.dtype)
      accumulators_ = BufferPool::New(element_count * DTypeSize(accumulator), memory.held);
  }

  Status Begin(int32_t, uint64_t, uint64_t payload_bytes,
               std::shared_ptr<PayloadSink>* sink) override {
    if (payload_bytes == 0) return OkStatus();
    if (sum_ == nullptr) BYTEPS_RETURN_IF_ERROR(StartSum());
    *sink = std::make_shared<BlockSink>(sum_);
    return OkStatus();
  }

  bool IsComplete(int32_t contributions) const override { return contributions == contributions_; }

  Status Finish(AggregationResult* result) override {
    result->element_count = sum_options_.element_count;
    result->payload_bytes = payload_bytes_;
    if (sum_ != nullptr) result->buffer = sum_->result();
    sum_ = nullptr;
    return OkStatus();
  }

  void Reset() override { sum_ = nullptr; }

 private:
  Status StartSum() {
    BlockSum::Options options = sum_options_;
    BYTEPS_RETURN_IF_ERROR(results_->Acquire(&options.result));
    options.accumulator = options.result;
    if (accumulators_ != nullptr)
      BYTEPS_RETURN_IF_ERROR(accumulators_->Acquire(&options.accumulator));
    sum_ = std::make_shared<BlockSum>(std::move(options));
    return OkStatus();
  }

  const int32_t contributions_;
  const uint64_t payload_bytes_;
  const std::shared_ptr<BufferPool> results_;
  std::shared_ptr<BufferPool> accumulators_;  // null if the sum becomes the result
  BlockSum::Options sum_options_;             // of every round, but for the buffers
  std::shared_ptr<BlockSum> sum_;             // of the running round
};

}  // namespace

std::unique_ptr<Aggregation> NewReduction(const TensorDescription& tensor, uint64_t element_count,
                                          const Participants& participants,
                                          const AggregationMemory& memory) {
  return std::make_unique<Reduction>(tensor, element_count, participants, memory);
}

}  // namespace byteps

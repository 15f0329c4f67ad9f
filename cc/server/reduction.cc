// Sum, average, minimum and maximum.
//
// In rank order (Participants::order) the one whose turn it is when it begins to arrive goes
// straight into the sum, as always; the others are received whole into memory of their own, and
// added in one go once all before them are in (protocol rule 13). Floating-point sums then do not
// depend on who arrives first.
#include <algorithm>
#include <utility>
#include <vector>

#include "cc/server/aggregation.h"
#include "cc/server/block_sum.h"
#include "cc/server/whole_sink.h"

namespace byteps {
namespace {

class Reduction : public Aggregation {
 public:
  Reduction(const TensorDescription& tensor, uint64_t element_count,
            const Participants& participants, const AggregationMemory& memory)
      : contributions_(participants.contributions),
        order_(participants.order),
        turns_(participants.order.size()),
        held_(memory.held),
        payload_bytes_(element_count * DTypeSize(tensor.dtype)),
        results_(BufferPool::New(payload_bytes_, memory.held, memory.registry)) {
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

  Status Begin(int32_t worker, uint64_t, uint64_t payload_bytes,
               std::shared_ptr<PayloadSink>* sink) override {
    if (payload_bytes == 0) return OkStatus();
    if (sum_ == nullptr) BYTEPS_RETURN_IF_ERROR(StartSum());
    if (!order_.empty() && order_[next_] != worker) return BeginWaiting(worker, sink);
    *sink = std::make_shared<BlockSink>(sum_);
    return OkStatus();
  }

  void End(int32_t worker) override {
    if (order_.empty()) return;
    TurnOf(worker).arrived = true;
    for (; next_ < turns_.size() && turns_[next_].arrived; ++next_) {
      if (turns_[next_].waiting == nullptr) continue;
      sum_->ContributeAll(turns_[next_].waiting->data());
      turns_[next_].waiting = nullptr;
    }
  }

  bool IsComplete(int32_t contributions) const override { return contributions == contributions_; }

  Status Finish(AggregationResult* result) override {
    result->element_count = sum_options_.element_count;
    result->payload_bytes = payload_bytes_;
    if (sum_ != nullptr) result->buffer = sum_->result();
    Reset();
    return OkStatus();
  }

  void Reset() override {
    sum_ = nullptr;
    std::fill(turns_.begin(), turns_.end(), Turn());
    next_ = 0;
  }

 private:
  struct Turn {
    bool arrived = false;
    std::shared_ptr<Buffer> waiting;  // null if it goes straight into the sum
  };

  Turn& TurnOf(int32_t worker) {
    return turns_[std::find(order_.begin(), order_.end(), worker) - order_.begin()];
  }

  Status BeginWaiting(int32_t worker, std::shared_ptr<PayloadSink>* sink) {
    std::unique_ptr<Buffer> buffer;
    BYTEPS_RETURN_IF_ERROR(Buffer::New(payload_bytes_, held_, &buffer));
    TurnOf(worker).waiting = std::move(buffer);
    *sink = std::make_shared<WholeSink>(TurnOf(worker).waiting);
    return OkStatus();
  }

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
  const std::vector<int32_t> order_;  // empty: in the order of arrival
  std::vector<Turn> turns_;           // of the running round, as order_
  size_t next_ = 0;                   // whose turn it is
  const HeldBytes held_;
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

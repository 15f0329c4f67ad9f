// An average that need not wait for all workers ("backup workers": Chen et al., "Revisiting
// Distributed Synchronous SGD", 2016, section 3).
//
// A contribution that may still be dropped is received whole beside the sum and added in one go
// (protocol rule 13): when the round ends, each is in with all of its bytes or with none. The sum
// is divided by the number of those that are in.
#include <algorithm>
#include <utility>
#include <vector>

#include "cc/server/aggregation.h"
#include "cc/server/block_sum.h"
#include "cc/server/whole_sink.h"

namespace byteps {
namespace {

class BackupAverage : public Aggregation {
 public:
  BackupAverage(const TensorDescription& tensor, uint64_t element_count,
                const Participants& participants, const AggregationMemory& memory)
      : required_(std::max(1, participants.contributions - tensor.backup_workers)),
        payload_bytes_(element_count * DTypeSize(tensor.dtype)),
        received_(BufferPool::New(payload_bytes_, memory.held, nullptr, participants.num_workers)),
        results_(
            BufferPool::New(payload_bytes_, memory.held, memory.registry, participants.max_lag)),
        waiting_(participants.num_workers) {
    sum_options_.dtype = tensor.dtype;
    sum_options_.num_contributions = BlockSum::kUnknown;
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
    BYTEPS_RETURN_IF_ERROR(received_->Acquire(&waiting_[worker]));
    *sink = std::make_shared<WholeSink>(waiting_[worker]);
    return OkStatus();
  }

  void End(int32_t worker) override {
    ++contributions_;
    if (waiting_[worker] == nullptr) return;
    sum_->ContributeAll(waiting_[worker]->data());
    waiting_[worker] = nullptr;
  }

  bool IsComplete(int32_t contributions) const override { return contributions >= required_; }

  Status Finish(AggregationResult* result) override {
    result->element_count = sum_options_.element_count;
    result->payload_bytes = payload_bytes_;
    if (sum_ != nullptr) {
      sum_->FinishAll(contributions_);
      result->buffer = sum_->result();
    }
    Reset();
    return OkStatus();
  }

  // What still arrives goes on into memory that its sink holds.
  void Reset() override {
    sum_ = nullptr;
    std::fill(waiting_.begin(), waiting_.end(), nullptr);
    contributions_ = 0;
  }

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

  const int32_t required_;
  const uint64_t payload_bytes_;
  const std::shared_ptr<BufferPool> received_;
  const std::shared_ptr<BufferPool> results_;
  std::shared_ptr<BufferPool> accumulators_;      // null if the sum becomes the result
  BlockSum::Options sum_options_;                 // of every round, but for the buffers
  std::vector<std::shared_ptr<Buffer>> waiting_;  // by worker: it is arriving
  int32_t contributions_ = 0;                     // that are in the sum
  std::shared_ptr<BlockSum> sum_;                 // of the running round
};

}  // namespace

std::unique_ptr<Aggregation> NewBackupAverage(const TensorDescription& tensor,
                                              uint64_t element_count,
                                              const Participants& participants,
                                              const AggregationMemory& memory) {
  return std::make_unique<BackupAverage>(tensor, element_count, participants, memory);
}

}  // namespace byteps

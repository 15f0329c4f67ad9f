// A sum or an average that need not wait for all workers ("backup workers": Chen et al.,
// "Revisiting Distributed Synchronous SGD", 2016, section 3).
//
// A contribution that may still be dropped is received whole beside the sum and added in one go
// (protocol rule 13): when the round ends, each is in with all of its bytes or with none. An
// average is divided by the number of those that are in. Who pushes to a sum without a payload is
// not in.
#include <algorithm>
#include <utility>
#include <vector>

#include "cc/server/aggregation.h"
#include "cc/server/round_sum.h"
#include "cc/server/whole_sink.h"

namespace byteps {
namespace {

class BackupAverage : public Aggregation {
 public:
  BackupAverage(const TensorDescription& tensor, uint64_t element_count,
                const Participants& participants, const AggregationMemory& memory)
      : required_(std::max(1, participants.contributions - tensor.backup_workers)),
        divides_(tensor.average),
        sum_(tensor, element_count, /*divisor=*/1, BlockSum::kUnknown, memory,
             participants.max_lag),
        received_(BufferPool::New(sum_.contribution_bytes(), memory.allocated, nullptr,
                                  participants.num_workers)),
        waiting_(participants.num_workers) {}

  Status Begin(int32_t worker, const IncomingPayload& payload,
               std::shared_ptr<PayloadSink>* sink) override {
    waiting_[worker].is_in = payload.bytes > 0 || divides_ || sum_.contribution_bytes() == 0;
    if (payload.bytes == 0) return OkStatus();
    BYTEPS_RETURN_IF_ERROR(sum_.Begin());
    BYTEPS_RETURN_IF_ERROR(received_->Acquire(&waiting_[worker].wire));
    waiting_[worker].form = sum_.FormOf(payload.codec);
    *sink = std::make_shared<WholeSink>(waiting_[worker].wire);
    return OkStatus();
  }

  Status End(int32_t worker) override {
    const Contribution contribution = std::exchange(waiting_[worker], {});
    if (contribution.is_in) ++contributions_;
    if (contribution.wire == nullptr) return OkStatus();
    BYTEPS_RETURN_IF_ERROR(sum_.CheckContribution(contribution.wire->data()));
    sum_.sum()->ContributeAll(contribution.wire->data(), contribution.form);
    return OkStatus();
  }

  bool IsComplete(int32_t contributions) const override {
    (void)contributions;  // some of them may not be in
    return contributions_ >= required_;
  }

  Status Finish(AggregationResult* result) override {
    if (sum_.sum() != nullptr) sum_.sum()->FinishAll(divides_ ? contributions_ : 1);
    sum_.Describe(result);
    Reset();
    return OkStatus();
  }

  // What still arrives goes on into memory that its sink holds.
  void Reset() override {
    sum_.Reset();
    std::fill(waiting_.begin(), waiting_.end(), Contribution());
    contributions_ = 0;
  }

 private:
  struct Contribution {
    std::shared_ptr<Buffer> wire;
    const BlockCodec* form = nullptr;
    bool is_in = false;  // or will be
  };

  const int32_t required_;
  const bool divides_;
  RoundSum sum_;
  const std::shared_ptr<BufferPool> received_;
  std::vector<Contribution> waiting_;  // by worker: it is arriving
  int32_t contributions_ = 0;          // that are in the sum
};

}  // namespace

std::unique_ptr<Aggregation> NewBackupAverage(const TensorDescription& tensor,
                                              uint64_t element_count,
                                              const Participants& participants,
                                              const AggregationMemory& memory) {
  return std::make_unique<BackupAverage>(tensor, element_count, participants, memory);
}

}  // namespace byteps

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
#include "cc/server/round_sum.h"
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
        turn_of_(participants.order.empty() ? 0 : participants.num_workers),
        held_(memory.held),
        sum_(tensor, element_count, tensor.average ? participants.num_workers : 1,
             participants.contributions, memory) {
    for (size_t turn = 0; turn < order_.size(); ++turn) turn_of_[order_[turn]] = turn;
  }

  Status Begin(int32_t worker, uint64_t, uint64_t payload_bytes,
               std::shared_ptr<PayloadSink>* sink) override {
    if (payload_bytes == 0) return OkStatus();
    BYTEPS_RETURN_IF_ERROR(sum_.Begin());
    if (!order_.empty() && order_[next_] != worker) return BeginWaiting(worker, sink);
    *sink = std::make_shared<BlockSink>(sum_.sum());
    return OkStatus();
  }

  void End(int32_t worker) override {
    if (order_.empty()) return;
    TurnOf(worker).arrived = true;
    for (; next_ < turns_.size() && turns_[next_].arrived; ++next_) {
      if (turns_[next_].waiting == nullptr) continue;
      sum_.sum()->ContributeAll(turns_[next_].waiting->data());
      turns_[next_].waiting = nullptr;
    }
  }

  bool IsComplete(int32_t contributions) const override { return contributions == contributions_; }

  Status Finish(AggregationResult* result) override {
    sum_.Describe(result);
    Reset();
    return OkStatus();
  }

  void Reset() override {
    sum_.Reset();
    std::fill(turns_.begin(), turns_.end(), Turn());
    next_ = 0;
  }

 private:
  struct Turn {
    bool arrived = false;
    std::shared_ptr<Buffer> waiting;  // null if it goes straight into the sum
  };

  Turn& TurnOf(int32_t worker) { return turns_[turn_of_[worker]]; }

  Status BeginWaiting(int32_t worker, std::shared_ptr<PayloadSink>* sink) {
    std::unique_ptr<Buffer> buffer;
    BYTEPS_RETURN_IF_ERROR(Buffer::New(sum_.contribution_bytes(), held_, &buffer));
    TurnOf(worker).waiting = std::move(buffer);
    *sink = std::make_shared<WholeSink>(TurnOf(worker).waiting);
    return OkStatus();
  }

  const int32_t contributions_;
  const std::vector<int32_t> order_;  // empty: in the order of arrival
  std::vector<Turn> turns_;           // of the running round, as order_
  std::vector<uint32_t> turn_of_;     // by worker
  size_t next_ = 0;                   // whose turn it is
  const HeldBytes held_;
  RoundSum sum_;
};

}  // namespace

std::unique_ptr<Aggregation> NewReduction(const TensorDescription& tensor, uint64_t element_count,
                                          const Participants& participants,
                                          const AggregationMemory& memory) {
  return std::make_unique<Reduction>(tensor, element_count, participants, memory);
}

}  // namespace byteps

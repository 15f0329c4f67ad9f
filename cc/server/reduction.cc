// Sum, average, minimum and maximum.
//
// In rank order (Participants::order) the one whose turn it is when it begins to arrive goes
// straight into the sum, as always; the others are received whole into memory of their own, and
// added in one go once all before them are in (protocol rule 13). Floating-point sums then do not
// depend on who arrives first. A round may end without some workers, who have joined: then their
// turns are left out, and what nobody was the last to add to is divided at its end. What a codec
// decodes only as a whole is received whole in any order.
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
        members_(participants.members),
        order_(participants.order),
        allocated_(memory.allocated),
        divisor_(tensor.average ? participants.num_workers : 1),
        sum_(tensor, element_count, divisor_, participants.contributions, memory),
        workers_(order_.empty() && !sum_.takes_whole_contributions() ? 0
                                                                     : participants.num_workers) {}

  Status Begin(int32_t worker, const IncomingPayload& payload,
               std::shared_ptr<PayloadSink>* sink) override {
    if (payload.bytes == 0) return OkStatus();
    BYTEPS_RETURN_IF_ERROR(sum_.Begin());
    const bool waits = !order_.empty() && order_[next_] != worker;
    const BlockCodec* const form = sum_.FormOf(payload.codec);
    if (waits || sum_.takes_whole_contributions()) return BeginWaiting(worker, form, sink);
    *sink = std::make_shared<BlockSink>(sum_.sum(), form);
    return OkStatus();
  }

  Status End(int32_t worker) override {
    ++added_;
    if (workers_.empty()) return OkStatus();
    const std::shared_ptr<Buffer>& waiting = Of(worker).waiting;
    if (waiting != nullptr) BYTEPS_RETURN_IF_ERROR(sum_.CheckContribution(waiting->data()));
    Of(worker).arrived = true;
    if (order_.empty()) AddWaiting(worker);
    for (; next_ < order_.size() && Of(order_[next_]).arrived; ++next_) AddWaiting(order_[next_]);
    return OkStatus();
  }

  bool IsComplete(int32_t contributions) const override { return contributions == contributions_; }

  Status Finish(AggregationResult* result) override {
    for (; next_ < order_.size(); ++next_) AddWaiting(order_[next_]);
    if (added_ < contributions_ && sum_.sum() != nullptr) sum_.sum()->FinishAll(divisor_);
    sum_.Describe(result);
    Reset();
    return OkStatus();
  }

  void Reset() override {
    sum_.Reset();
    std::fill(workers_.begin(), workers_.end(), Contribution());
    next_ = 0;
    added_ = 0;
  }

 private:
  struct Contribution {
    bool arrived = false;
    std::shared_ptr<Buffer> waiting;   // null if it goes straight into the sum, or is there
    const BlockCodec* form = nullptr;  // of what waits
  };

  Status BeginWaiting(int32_t worker, const BlockCodec* form, std::shared_ptr<PayloadSink>* sink) {
    std::unique_ptr<Buffer> buffer;
    BYTEPS_RETURN_IF_ERROR(Buffer::New(sum_.contribution_bytes(), allocated_, &buffer));
    Of(worker).waiting = std::move(buffer);
    Of(worker).form = form;
    *sink = std::make_shared<WholeSink>(Of(worker).waiting);
    return OkStatus();
  }

  void AddWaiting(int32_t worker) {
    const std::shared_ptr<Buffer> waiting = std::move(Of(worker).waiting);
    if (waiting != nullptr) sum_.sum()->ContributeAll(waiting->data(), Of(worker).form);
  }

  Contribution& Of(int32_t worker) { return workers_[members_.PlaceOf(worker)]; }

  const int32_t contributions_;
  const Members members_;
  const std::vector<int32_t> order_;  // empty: in the order of arrival
  size_t next_ = 0;                   // whose turn it is
  const AllocatedBytes allocated_;
  const int32_t divisor_;
  int32_t added_ = 0;  // contributions that are complete
  RoundSum sum_;
  std::vector<Contribution> workers_;  // by place, of the running round; empty: nobody waits
};

}  // namespace

std::unique_ptr<Aggregation> NewReduction(const TensorDescription& tensor, uint64_t element_count,
                                          const Participants& participants,
                                          const AggregationMemory& memory) {
  return std::make_unique<Reduction>(tensor, element_count, participants, memory);
}

}  // namespace byteps

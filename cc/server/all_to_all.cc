// Each worker's rows, split among the workers: a contribution is num_workers int64, how many of its
// rows go to each that takes part, then the rows in the order of those ranks. Each worker gets what
// all have for it (server/rows_result.h). Each row goes up once and down once, whatever the number
// of workers. A worker's rows for itself are 0: it keeps them (worker/exchange_output.h).
//
// A round of n workers costs the last contribution n * n steps and as many counts in the replies:
// that is how many splits there are.
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "cc/server/aggregation.h"
#include "cc/server/rows_result.h"
#include "cc/server/whole_sink.h"

namespace byteps {
namespace {

class AllToAll : public Aggregation {
 public:
  AllToAll(const TensorDescription& tensor, const Participants& participants,
           const AggregationMemory& memory)
      : element_size_(DTypeSize(tensor.dtype)),
        row_bytes_(tensor.ByteCount()),
        members_(participants.members),
        allocated_(memory.allocated),
        contributions_(participants.num_workers) {}

  Status Begin(int32_t worker, const IncomingPayload& payload,
               std::shared_ptr<PayloadSink>* sink) override {
    Contribution& contribution = contributions_[members_.PlaceOf(worker)];
    contribution.rows = static_cast<int64_t>(payload.rows);
    return NewWholeSink(payload.bytes, allocated_, &contribution.payload, sink);
  }

  // The number of bytes has been checked; what the splits say of them is known only now.
  Status End(int32_t worker) override {
    const Contribution& contribution = contributions_[members_.PlaceOf(worker)];
    int64_t rest = contribution.rows;
    for (const int64_t rows : SplitsOf(contribution)) {
      if (rows < 0 || rows > rest) return BadSplits(contribution);
      rest -= rows;
    }
    return rest == 0 ? OkStatus() : BadSplits(contribution);
  }

  bool IsComplete(int32_t contributions) const override {
    return contributions == static_cast<int32_t>(contributions_.size());
  }

  Status Finish(AggregationResult* result) override {
    const size_t workers = contributions_.size();
    std::vector<std::vector<RowsOfWorker>> received(workers);  // by receiver and sender
    for (const Contribution& contribution : contributions_) {
      const std::vector<int64_t> splits = SplitsOf(contribution);
      const uint8_t* next = contribution.payload->data() + workers * sizeof(int64_t);
      for (size_t to = 0; to < workers; ++to) {
        const uint64_t bytes = splits[to] * row_bytes_;
        received[to].push_back({splits[to], next, bytes, contribution.payload});
        next += bytes;
      }
    }
    auto results =
        std::make_shared<std::vector<AggregationResult>>(members_.RankAt(workers - 1) + 1);
    for (size_t to = 0; to < workers; ++to) {
      AggregationResult* const its = &(*results)[members_.RankAt(to)];
      BYTEPS_RETURN_IF_ERROR(MakeRowsResult(received[to], element_size_, allocated_, its));
    }
    result->by_rank = std::move(results);
    Reset();
    return OkStatus();
  }

  void Reset() override { contributions_.assign(contributions_.size(), Contribution()); }

 private:
  struct Contribution {
    std::shared_ptr<Buffer> payload;
    int64_t rows = 0;
  };

  std::vector<int64_t> SplitsOf(const Contribution& contribution) const {
    std::vector<int64_t> splits(contributions_.size());
    std::memcpy(splits.data(), contribution.payload->data(), splits.size() * sizeof(int64_t));
    return splits;
  }

  static Status BadSplits(const Contribution& contribution) {
    return InvalidArgument("its splits are not numbers of rows that add up to the " +
                           std::to_string(contribution.rows) + " rows that it sent");
  }

  const size_t element_size_;
  const uint64_t row_bytes_;
  const Members members_;
  const AllocatedBytes allocated_;
  std::vector<Contribution> contributions_;  // by place among them
};

}  // namespace

std::unique_ptr<Aggregation> NewAllToAll(const TensorDescription& tensor,
                                         const Participants& participants,
                                         const AggregationMemory& memory) {
  return std::make_unique<AllToAll>(tensor, participants, memory);
}

}  // namespace byteps

// All workers' rows in rank order, with their counts in front (server/rows_result.h).
#include <utility>
#include <vector>

#include "cc/server/aggregation.h"
#include "cc/server/rows_result.h"
#include "cc/server/whole_sink.h"

namespace byteps {
namespace {

class Gather : public Aggregation {
 public:
  Gather(const TensorDescription& tensor, const Participants& participants,
         const AggregationMemory& memory)
      : element_size_(DTypeSize(tensor.dtype)),
        members_(participants.members),
        allocated_(memory.allocated),
        rows_(participants.num_workers) {}

  // Where a contribution goes in the result is known only when all are there: each waits in a
  // buffer of its own.
  Status Begin(int32_t worker, const IncomingPayload& payload,
               std::shared_ptr<PayloadSink>* sink) override {
    std::unique_ptr<Buffer> made;
    BYTEPS_RETURN_IF_ERROR(Buffer::New(payload.bytes, allocated_, &made));
    const std::shared_ptr<Buffer> buffer = std::move(made);
    rows_[members_.PlaceOf(worker)] = {static_cast<int64_t>(payload.rows), buffer->data(),
                                       payload.bytes, buffer};
    if (payload.bytes > 0) *sink = std::make_shared<WholeSink>(buffer);
    return OkStatus();
  }

  bool IsComplete(int32_t contributions) const override {
    return contributions == static_cast<int32_t>(rows_.size());
  }

  Status Finish(AggregationResult* result) override {
    BYTEPS_RETURN_IF_ERROR(MakeRowsResult(rows_, element_size_, allocated_, result));
    Reset();
    return OkStatus();
  }

  void Reset() override { rows_.assign(rows_.size(), RowsOfWorker()); }

 private:
  const size_t element_size_;
  const Members members_;
  const AllocatedBytes allocated_;
  std::vector<RowsOfWorker> rows_;  // by place among them
};

}  // namespace

std::unique_ptr<Aggregation> NewGather(const TensorDescription& tensor,
                                       const Participants& participants,
                                       const AggregationMemory& memory) {
  return std::make_unique<Gather>(tensor, participants, memory);
}

}  // namespace byteps

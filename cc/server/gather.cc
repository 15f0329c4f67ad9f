// All workers' rows in rank order, with their counts in front: num_workers int64, then the rows.
#include <cstring>
#include <vector>

#include "cc/server/aggregation.h"
#include "cc/server/whole_sink.h"

namespace byteps {
namespace {

class Gather : public Aggregation {
 public:
  Gather(const TensorDescription& tensor, int32_t num_workers, const AggregationMemory& memory)
      : element_size_(DTypeSize(tensor.dtype)),
        num_workers_(num_workers),
        held_(memory.held),
        counts_(num_workers),
        rows_(num_workers) {}

  // Where a contribution goes in the result is known only when all are there: each waits in a
  // buffer of its own.
  Status Begin(int32_t worker, const IncomingPayload& payload,
               std::shared_ptr<PayloadSink>* sink) override {
    std::unique_ptr<Buffer> buffer;
    BYTEPS_RETURN_IF_ERROR(Buffer::New(payload.bytes, held_, &buffer));
    counts_[worker] = static_cast<int64_t>(payload.rows);
    rows_[worker] = std::move(buffer);
    if (payload.bytes > 0) *sink = std::make_shared<WholeSink>(rows_[worker]);
    return OkStatus();
  }

  bool IsComplete(int32_t contributions) const override { return contributions == num_workers_; }

  Status Finish(AggregationResult* result) override {
    const uint64_t head_bytes = counts_.size() * sizeof(int64_t);
    uint64_t total_bytes = head_bytes;
    for (const auto& rows : rows_) total_bytes += rows->bytes();
    std::unique_ptr<Buffer> gathered;
    BYTEPS_RETURN_IF_ERROR(Buffer::New(total_bytes, held_, &gathered));
    std::memcpy(gathered->data(), counts_.data(), head_bytes);
    uint8_t* row_place = gathered->data() + head_bytes;
    for (const auto& rows : rows_) {
      if (rows->bytes() > 0) std::memcpy(row_place, rows->data(), rows->bytes());
      row_place += rows->bytes();
    }
    result->element_count = (total_bytes - head_bytes) / element_size_;
    result->payload_bytes = total_bytes;
    result->buffer = std::move(gathered);
    Reset();
    return OkStatus();
  }

  void Reset() override {
    for (auto& rows : rows_) rows = nullptr;
  }

 private:
  const size_t element_size_;
  const int32_t num_workers_;
  const HeldBytes held_;
  std::vector<int64_t> counts_;                // of rows, by rank
  std::vector<std::shared_ptr<Buffer>> rows_;  // by rank
};

}  // namespace

std::unique_ptr<Aggregation> NewGather(const TensorDescription& tensor,
                                       const Participants& participants,
                                       const AggregationMemory& memory) {
  return std::make_unique<Gather>(tensor, participants.num_workers, memory);
}

}  // namespace byteps

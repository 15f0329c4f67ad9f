// All workers' rows in rank order, with their counts in front: num_workers int64, then the rows.
// Nothing long is copied: a result is sent from where the contributions are.
#include <cstring>
#include <vector>

#include "cc/server/aggregation.h"
#include "cc/server/whole_sink.h"

namespace byteps {
namespace {

// Rows of fewer bytes are copied next to each other: a frame of many short pieces costs more.
constexpr uint64_t kLeastOwnPiece = 64 * 1024;

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
    uint64_t copied_bytes = head_bytes;
    for (const auto& rows : rows_) copied_bytes += IsCopied(*rows) ? rows->bytes() : 0;
    std::unique_ptr<Buffer> made;
    BYTEPS_RETURN_IF_ERROR(Buffer::New(copied_bytes, held_, &made));
    const std::shared_ptr<Buffer> copies = std::move(made);
    auto gathered = std::make_shared<ScatteredPayload>();
    std::memcpy(copies->data(), counts_.data(), head_bytes);
    uint8_t* begin = copies->data();  // of the copies that are no piece yet
    uint8_t* end = begin + head_bytes;
    for (const auto& rows : rows_) {
      if (IsCopied(*rows)) {
        if (rows->bytes() > 0) std::memcpy(end, rows->data(), rows->bytes());
        end += rows->bytes();
        continue;
      }
      gathered->Add(begin, end - begin, copies);
      begin = end;
      gathered->Add(rows->data(), rows->bytes(), rows);
    }
    gathered->Add(begin, end - begin, copies);
    result->element_count = (gathered->bytes() - head_bytes) / element_size_;
    result->payload_bytes = gathered->bytes();
    result->scattered = gathered.get();
    result->memory = std::move(gathered);
    Reset();
    return OkStatus();
  }

  void Reset() override {
    for (auto& rows : rows_) rows = nullptr;
  }

 private:
  static bool IsCopied(const Buffer& rows) { return rows.bytes() < kLeastOwnPiece; }

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

// One worker's value for everybody.
#include "cc/server/aggregation.h"
#include "cc/server/whole_sink.h"

namespace byteps {
namespace {

class Broadcast : public Aggregation {
 public:
  Broadcast(const TensorDescription& tensor, uint64_t element_count,
            const Participants& participants, const AggregationMemory& memory)
      : root_(participants.root),
        contributions_(participants.contributions),
        element_count_(element_count),
        payload_bytes_(element_count * DTypeSize(tensor.dtype)),
        buffers_(BufferPool::New(payload_bytes_, memory.allocated, memory.registry)) {}

  // The root's payload is the result: it is received straight into the buffer that is sent.
  Status Begin(int32_t worker, const IncomingPayload& payload,
               std::shared_ptr<PayloadSink>* sink) override {
    if (worker != root_) return OkStatus();
    BYTEPS_RETURN_IF_ERROR(buffers_->Acquire(&value_));
    if (payload.bytes > 0) *sink = std::make_shared<WholeSink>(value_);
    return OkStatus();
  }

  bool IsComplete(int32_t contributions) const override { return contributions == contributions_; }

  Status Finish(AggregationResult* result) override {
    result->element_count = element_count_;
    result->payload_bytes = payload_bytes_;
    result->payload = value_->data();
    result->memory = std::move(value_);
    return OkStatus();
  }

  bool SendsResultTo(int32_t worker) const override { return worker != root_; }

  void Reset() override { value_ = nullptr; }

 private:
  const int32_t root_;
  const int32_t contributions_;
  const uint64_t element_count_;
  const uint64_t payload_bytes_;
  const std::shared_ptr<BufferPool> buffers_;
  std::shared_ptr<Buffer> value_;
};

}  // namespace

std::unique_ptr<Aggregation> NewBroadcast(const TensorDescription& tensor, uint64_t element_count,
                                          const Participants& participants,
                                          const AggregationMemory& memory) {
  return std::make_unique<Broadcast>(tensor, element_count, participants, memory);
}

}  // namespace byteps

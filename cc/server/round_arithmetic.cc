#include "cc/server/round_arithmetic.h"

#include <utility>

#include "cc/codec/part_forms.h"
#include "cc/server/counted_sink.h"

namespace byteps {

Status RoundArithmetic::Begin(const Push& push, Incoming* incoming) {
  if (entry_ != push.entry) Prepare(push.entry);
  const FrameHeader& header = push.header;
  std::shared_ptr<PayloadSink> sink;
  const Status begun = aggregation_->Begin(
      header.worker, {header.payload_bytes, header.row_count, header.codec}, &sink);
  if (sink == nullptr) return begun;
  auto counted = std::make_shared<CountedSink>(std::move(sink), header.payload_bytes);
  incoming->received = &counted->received();
  incoming->sink = std::move(counted);
  return begun;
}

void RoundArithmetic::Prepare(const TableEntry* entry) {
  Participants participants =
      ParticipantsOf(*entry, options_.part, *options_.hosts, options_.in_rank_order);
  participants.max_lag = options_.max_lag;
  const uint64_t elements = entry->parts[options_.part].element_count;
  const BlockCodec* const codec = FormsOf(entry->tensor).sum(elements);
  AggregationMemory memory = options_.memory;
  encoded_sums_ = nullptr;
  if (codec != nullptr) {
    encoded_sums_ = BufferPool::New(codec->EncodedBytes(elements), memory.allocated,
                                    memory.registry, options_.max_lag);
    memory.registry = nullptr;  // the sum itself is not sent
  }
  aggregation_ = NewAggregation(entry->tensor, elements, participants, memory);
  entry_ = entry;
}

Status RoundArithmetic::Finish(uint64_t round, AggregationResult* result) {
  BYTEPS_RETURN_IF_ERROR(aggregation_->Finish(result));
  return Encode(round, result);
}

// Once for all workers, who therefore get the same bits. It happens under the part's mutex, on the
// thread that has taken in the last contribution: the part's next round and the replies to this one
// wait for it, a fraction of a millisecond for a part of some megabytes. Other parts go on.
Status RoundArithmetic::Encode(uint64_t round, AggregationResult* result) const {
  if (encoded_sums_ == nullptr || result->payload == nullptr) return OkStatus();
  const uint64_t elements = result->element_count;
  const BlockCodec& codec = *FormsOf(entry_->tensor).sum(elements);
  PartSeed seed;
  seed.key = entry_->key;
  seed.part = options_.part;
  seed.round = round;
  seed.sender = options_.num_workers;
  std::shared_ptr<Buffer> encoded;
  BYTEPS_RETURN_IF_ERROR(encoded_sums_->Acquire(&encoded));
  const EncodedPart part =
      codec.Encode(static_cast<const float*>(result->payload), elements, seed, encoded->data());
  const void* const payload = encoded->data();
  *result = {std::move(encoded), payload, elements, part.bytes, part.codec};
  return OkStatus();
}

void RoundArithmetic::Release() {
  aggregation_.reset();
  encoded_sums_.reset();
  entry_ = nullptr;
}

}  // namespace byteps

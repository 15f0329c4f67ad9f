// The part of RoundsState for what workers are answered.
#include <utility>

#include "cc/server/state/participants.h"
#include "cc/server/state/rounds.h"

namespace byteps {

bool RoundsState::Contributes(const TableEntry& entry, int32_t worker) const {
  if (!members_.Contain(worker) || HasJoined(worker)) return false;
  return !entry.tensor.per_host || options_.hosts->OwnerOn(options_.hosts->HostOf(worker),
                                                           entry.key, options_.part) == worker;
}

// A worker pushes a round only when it, and all for whom it pushes, have the result of the one
// before.
uint64_t RoundsState::Watermark(const TableEntry& entry) const {
  const LowestRound* const pushed =
      entry.tensor.per_host ? pushed_rounds_by_host_.get() : &pushed_rounds_;
  return pushed == nullptr || pushed->lowest() == 0 ? 0 : pushed->lowest() - 1;
}

Reply RoundsState::NewReply(const Contribution& to, uint64_t round) const {
  Reply reply;
  reply.to = to.from;
  reply.generation = to.generation;
  FrameHeader& header = reply.frame.header;
  header.type = FrameType::kReply;
  header.epoch = options_.epoch;
  header.key = to.entry->key;
  header.part = options_.part;
  header.variant = to.entry->variant;
  header.round = round;
  header.placement_version = to.placement_version;
  header.worker = to.worker;
  header.priority = to.priority;
  header.watermark = Watermark(*to.entry);
  header.begin_time_ns = to.begin_time_ns;
  header.receive_time_ns = to.receive_time_ns;
  return reply;
}

Reply RoundsState::ResultReply(const Contribution& to, uint64_t round,
                               const AggregationResult& result) const {
  Reply reply = NewReply(to, round);
  const AggregationResult& own = result.For(to.worker);
  reply.frame.header.element_count = own.element_count;
  if (own.payload_bytes > 0 && sum_.SendsResultTo(to.worker)) own.PutInto(&reply.frame);
  return reply;
}

Reply RoundsState::ErrorReply(const Contribution& to, uint64_t round, const Status& status) const {
  Reply reply = NewReply(to, round);
  PutError(status, &reply.frame);
  return reply;
}

// Once the aggregation may be that of another variant.
Reply RoundsState::EndedReply(const Contribution& to, const Ended& ended) const {
  const Participants participants =
      ParticipantsOf(*to.entry, options_.part, *options_.hosts, /*in_rank_order=*/false);
  Reply reply = NewReply(to, ended.round);
  const AggregationResult& result = ended.result.For(to.worker);
  reply.frame.header.element_count = result.element_count;
  const bool has_it =
      to.entry->tensor.kind == ExchangeKind::kBroadcast && participants.root == to.worker;
  if (result.payload_bytes == 0 || has_it) return reply;
  result.PutInto(&reply.frame);
  return reply;
}

// Kept until the worker pushes again: it may be lost with its connection. Not a reply to a push
// that the worker's newest one has overtaken.
void RoundsState::HandOut(Reply reply, std::vector<Reply>* replies) {
  const int32_t worker = reply.frame.header.worker;
  if (reply.frame.header.round + 1 == pushed_rounds_.of(worker)) kept_[worker] = reply;
  replies->push_back(std::move(reply));
}

}  // namespace byteps

// The part of RoundsState for connections that break and come again.
#include <utility>

#include "cc/server/state/rounds.h"

namespace byteps {

Status RoundsState::Resume(const std::shared_ptr<WorkerConnection>& from, int32_t rank,
                           uint64_t generation, uint64_t round,
                           std::optional<uint64_t>* received_bytes, std::vector<Reply>* replies) {
  Standing& worker = workers_[rank];
  const uint64_t pushed_rounds = pushed_rounds_.of(rank);
  if (round >= pushed_rounds) {
    *received_bytes = 0;
    return OkStatus();
  }
  // Its exchange has failed while the question waited, and it has gone on over another connection
  // (protocol rule 31).
  if (round + 1 < pushed_rounds && worker.from != from.get()) return OkStatus();
  const bool is_its = worker.from == from.get() || worker.was_cut_off;
  const bool is_lost = worker.generation != 0 && (ended_ == nullptr || ended_->round != round);
  if (round + 1 < pushed_rounds || !is_its || is_lost) {
    return InvalidArgument("asks for its push of round " + std::to_string(round) + " of tensor \"" +
                           options_.tensor_name +
                           "\", which is over, or was not made over this connection");
  }
  if (worker.generation != 0) {
    // One that was made since the connection came again is in flight over it.
    if (std::exchange(worker.generation, static_cast<uint32_t>(generation)) == generation)
      return OkStatus();
    Contribution to;
    to.entry = ended_->entry;
    to.from = from;
    to.worker = rank;
    to.generation = generation;
    to.priority = worker.priority;
    to.placement_version = worker.placement_version;
    replies->push_back(EndedReply(to, *ended_));
    return OkStatus();
  }
  const auto kept = kept_.find(rank);
  if (kept != kept_.end()) {
    Reply& answer = kept->second;
    if (answer.generation == generation) return OkStatus();
    answer.generation = generation;
    replies->push_back(answer);
    return OkStatus();
  }
  Contribution* const contribution =
      round == round_ && HasContributions() ? &contributions_[rank] : nullptr;
  if (contribution != nullptr) contribution->generation = generation;
  if (contribution != nullptr && contribution->state == State::kWaiting) return OkStatus();
  worker.was_cut_off = true;
  const bool goes_on =
      IsOpen(round) && contribution != nullptr && contribution->incoming.sink != nullptr;
  *received_bytes = goes_on ? contribution->incoming.received->taken : 0;
  return OkStatus();
}

void RoundsState::OnResultProgress(uint64_t next_round) {
  if (HasContributions() || round_ > next_round || !history_.empty()) return;
  ended_.reset();
  kept_.clear();
  inherited_.clear();
  sum_.Release();
  summed_ = nullptr;
}

// With the push that was cut off: what is in the sum already does not come again.
Status RoundsState::GoOn(const Push& push, std::shared_ptr<PayloadSink>* sink) {
  const FrameHeader& header = push.header;
  workers_[header.worker].from = push.from.get();
  if (header.round != round_ || !HasContributions()) return OkStatus();  // too late: End says so
  Contribution& contribution = contributions_[header.worker];
  contribution.from = push.from;
  contribution.generation = push.generation;
  if (cause_ != Cause::kNone || contribution.incoming.sink == nullptr) return OkStatus();
  const ReceivedBytes& begun = *contribution.incoming.received;
  if (push.entry != contribution.entry || header.payload_offset != begun.taken ||
      header.payload_bytes != begun.bytes - begun.taken) {
    return InvalidArgument("goes on with part " + std::to_string(options_.part) + " of tensor \"" +
                           options_.tensor_name + "\", " + std::to_string(header.payload_bytes) +
                           " bytes from " + std::to_string(header.payload_offset) + " on, where " +
                           std::to_string(begun.taken) + " of " + std::to_string(begun.bytes) +
                           " are here");
  }
  *sink = contribution.incoming.sink;
  return OkStatus();
}

}  // namespace byteps

// The part of PartRounds for connections that break and come again.
#include <utility>

#include "cc/server/part_rounds.h"

namespace byteps {

// Kept until the worker pushes again: it may be lost with its connection.
void PartRounds::HandOut(Reply reply, std::vector<Reply>* replies) {
  workers_[reply.to->rank()].last_reply = reply;
  replies->push_back(std::move(reply));
}

Status PartRounds::Resume(const std::shared_ptr<WorkerConnection>& from, uint64_t round,
                          std::optional<uint64_t>* received_bytes, std::vector<Reply>* replies) {
  std::lock_guard<std::mutex> lock(mutex_);
  Standing& worker = workers_[from->rank()];
  if (round >= worker.pushed_rounds) {
    *received_bytes = 0;
    return OkStatus();
  }
  const bool is_its = worker.from == from || worker.was_cut_off;
  if (round + 1 < worker.pushed_rounds || !is_its) {
    return InvalidArgument(from->name() + " asks for its push of round " + std::to_string(round) +
                           " of tensor \"" + options_.tensor_name +
                           "\", which is over, or was not made over this connection");
  }
  Reply& answer = worker.last_reply;
  if (answer.to != nullptr) {
    // One that was made since the connection came again is on its way over it.
    if (answer.generation == from->generation()) return OkStatus();
    answer.generation = from->generation();
    replies->push_back(answer);
    return OkStatus();
  }
  const Contribution& contribution = contributions_[from->rank()];
  if (round == round_ && contribution.state == State::kWaiting) return OkStatus();
  worker.was_cut_off = true;
  const bool goes_on = IsOpen(round) && contribution.sink != nullptr;
  *received_bytes = goes_on ? contribution.sink->taken() : 0;
  return OkStatus();
}

// With the push that was cut off: what is in the sum already does not come again.
Status PartRounds::GoOn(const Push& push, std::shared_ptr<PayloadSink>* sink) {
  const FrameHeader& header = push.header;
  workers_[header.worker].from = push.from;
  if (header.round != round_) return OkStatus();  // too late: End says so
  Contribution& contribution = contributions_[header.worker];
  contribution.from = push.from;
  if (cause_ != Cause::kNone || contribution.sink == nullptr) return OkStatus();
  const CountedSink& begun = *contribution.sink;
  if (push.entry != contribution.entry || header.payload_offset != begun.taken() ||
      header.payload_bytes != begun.bytes() - begun.taken()) {
    return InvalidArgument(
        push.from->name() + " goes on with part " + std::to_string(options_.part) +
        " of tensor \"" + options_.tensor_name + "\", " + std::to_string(header.payload_bytes) +
        " bytes from " + std::to_string(header.payload_offset) + " on, where " +
        std::to_string(begun.taken()) + " of " + std::to_string(begun.bytes()) + " are here");
  }
  *sink = contribution.sink;
  return OkStatus();
}

}  // namespace byteps

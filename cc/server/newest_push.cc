#include "cc/server/newest_push.h"

#include <utility>

namespace byteps {

Status NewestPush::CheckBegins(const Push& push, const std::string& what) {
  const FrameHeader& given = push.header;
  const bool comes_again = std::exchange(was_cut_off, false);
  if (given.payload_offset == 0 && (given.round + 1 != pushed_rounds || comes_again))
    return OkStatus();
  return InvalidArgument(push.from->name() + " pushed " + what + " for round " +
                         std::to_string(given.round) + " twice, or not from its begin on");
}

void NewestPush::Begin(const Push& push) {
  pushed_rounds = push.header.round + 1;
  from = push.from;
  header = push.header;
  begin_time_ns = push.begin_time_ns;
  payload = nullptr;
  error = OkStatus();
}

Status NewestPush::FindAsked(const std::shared_ptr<WorkerConnection>& asker, uint64_t asked,
                             const std::string& title, bool* is_this,
                             std::optional<uint64_t>* received_bytes) const {
  *is_this = false;
  if (asked >= pushed_rounds) {
    *received_bytes = 0;
    return OkStatus();
  }
  const bool is_older = asked + 1 < pushed_rounds;
  // It has given that up, and gone on over another connection (protocol rule 31).
  if (is_older && from != asker) return OkStatus();
  if (is_older || from != asker) {
    return InvalidArgument(asker->name() + " asks for its push of round " + std::to_string(asked) +
                           " of " + title +
                           ", which is over, or was not made over this connection");
  }
  *is_this = true;
  return OkStatus();
}

Reply NewestPush::NewReply(const PartOptions& part, uint64_t key) {
  Reply reply;
  reply.to = from;
  reply.generation = generation = from->generation();
  FrameHeader& answer = reply.frame.header;
  answer.type = FrameType::kReply;
  answer.epoch = part.epoch;
  answer.key = key;
  answer.part = part.part;
  answer.variant = header.variant;
  answer.round = pushed_rounds - 1;
  answer.placement_version = header.placement_version;
  answer.worker = from->rank();
  answer.priority = header.priority;
  answer.begin_time_ns = begin_time_ns;
  answer.receive_time_ns = receive_time_ns;
  return reply;
}

Reply NewestPush::NewErrorReply(const PartOptions& part, uint64_t key) {
  Reply reply = NewReply(part, key);
  PutError(error, &reply.frame);
  return reply;
}

}  // namespace byteps

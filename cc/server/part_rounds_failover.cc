// The part of PartRounds for parts whose server is lost, and which live here from then on (protocol
// rule 15).
#include <algorithm>
#include <utility>

#include "cc/server/part_rounds.h"
#include "cc/server/whole_sink.h"

namespace byteps {

Status PartRounds::BeginResult(Push* push, std::shared_ptr<PayloadSink>* sink) {
  const FrameHeader& header = push->header;
  push->result = nullptr;
  MutexLock lock(mutex_);
  // One that comes twice, because a connection has broken, is read and dropped.
  if (inherited_ == nullptr || inherited_->is_here) return OkStatus();
  if (header.round != inherited_->ended.round || header.worker != inherited_->from) {
    return InvalidArgument(push->from->name() + " sent the result of round " +
                           std::to_string(header.round) + " of part " +
                           std::to_string(options_.part) + " of tensor \"" + options_.tensor_name +
                           "\"; that of round " + std::to_string(inherited_->ended.round) +
                           " is to come from worker " + std::to_string(inherited_->from));
  }
  std::unique_ptr<Buffer> buffer;
  BYTEPS_RETURN_IF_ERROR(
      Buffer::New(header.payload_bytes, options_.memory.held, &buffer, options_.memory.registry));
  push->result = std::move(buffer);
  if (header.payload_bytes > 0) *sink = std::make_shared<WholeSink>(push->result);
  return OkStatus();
}

void PartRounds::EndResult(Push* push, std::vector<Reply>* replies) {
  const std::shared_ptr<Buffer> result = std::exchange(push->result, nullptr);
  MutexLock lock(mutex_);
  if (result == nullptr || inherited_ == nullptr || inherited_->is_here ||
      push->header.round != inherited_->ended.round)
    return;
  inherited_->is_here = true;
  inherited_->ended.entry = push->entry;
  inherited_->ended.result = {result, push->header.element_count, push->header.payload_bytes,
                              CodecId::kRaw};  // as CheckResult wants it
  for (const Contribution& waiting : std::exchange(inherited_->waiting, {}))
    HandOut(InheritedReply(waiting), replies);
}

bool PartRounds::IsInherited(uint64_t round) const {
  return inherited_ != nullptr && inherited_->ended.round == round && round < round_;
}

// `late` is not summed: others have the result of its round.
void PartRounds::AnswerInherited(Contribution late, std::vector<Reply>* replies) {
  if (inherited_->is_here) return HandOut(InheritedReply(late), replies);
  for (Contribution& waiting : inherited_->waiting) {
    if (waiting.from->rank() != late.from->rank()) continue;
    waiting = std::move(late);  // its connection has broken
    return;
  }
  inherited_->waiting.push_back(std::move(late));
}

void PartRounds::FailInherited(const Status& status, std::vector<Reply>* replies) {
  if (inherited_ == nullptr) return;
  for (const Contribution& waiting : std::exchange(inherited_->waiting, {}))
    HandOut(ErrorReply(waiting, inherited_->ended.round, status), replies);
}

Reply PartRounds::InheritedReply(const Contribution& to) const {
  const Ended& ended = inherited_->ended;
  if (to.entry == ended.entry) return EndedReply(to, ended);
  return ErrorReply(
      to, ended.round,
      FailedPrecondition(Title(ended.round) + " has ended with " + ended.entry->tensor.ToString() +
                         "; worker " + std::to_string(to.from->rank()) + " sent " +
                         to.entry->tensor.ToString()));
}

}  // namespace byteps

// The part of RoundsState for parts whose server is lost, and which live here from then on
// (protocol rule 15).
#include <algorithm>
#include <utility>

#include "cc/server/state/rounds.h"

namespace byteps {

Status RoundsState::CheckResult(const Push& push, bool* is_needed) const {
  const FrameHeader& header = push.header;
  // One that comes twice, because a connection has broken, is read and dropped.
  *is_needed = inherited_ != nullptr && !inherited_->is_here;
  if (!*is_needed) return OkStatus();
  if (header.round == inherited_->ended.round && header.worker == inherited_->from)
    return OkStatus();
  return InvalidArgument("sent the result of round " + std::to_string(header.round) + " of part " +
                         std::to_string(options_.part) + " of tensor \"" + options_.tensor_name +
                         "\"; that of round " + std::to_string(inherited_->ended.round) +
                         " is to come from worker " + std::to_string(inherited_->from));
}

void RoundsState::EndResult(const Push& push, AggregationResult result,
                            std::vector<Reply>* replies) {
  if (inherited_ == nullptr || inherited_->is_here || push.header.round != inherited_->ended.round)
    return;
  inherited_->is_here = true;
  inherited_->ended.entry = push.entry;
  inherited_->ended.result = std::move(result);
  for (const Contribution& waiting : std::exchange(inherited_->waiting, {}))
    HandOut(InheritedReply(waiting), replies);
}

bool RoundsState::IsInherited(uint64_t round) const {
  return inherited_ != nullptr && inherited_->ended.round == round && round < round_;
}

// `late` is not summed: others have the result of its round.
void RoundsState::AnswerInherited(Contribution late, std::vector<Reply>* replies) {
  if (inherited_->is_here) return HandOut(InheritedReply(late), replies);
  for (Contribution& waiting : inherited_->waiting) {
    if (waiting.worker != late.worker) continue;
    waiting = std::move(late);  // its connection has broken
    return;
  }
  inherited_->waiting.push_back(std::move(late));
}

void RoundsState::FailInherited(const Status& status, std::vector<Reply>* replies) {
  if (inherited_ == nullptr) return;
  for (const Contribution& waiting : std::exchange(inherited_->waiting, {}))
    HandOut(ErrorReply(waiting, inherited_->ended.round, status), replies);
}

Reply RoundsState::InheritedReply(const Contribution& to) const {
  const Ended& ended = inherited_->ended;
  if (to.entry == ended.entry) return EndedReply(to, ended);
  return ErrorReply(
      to, ended.round,
      FailedPrecondition(Title(ended.round) + " has ended with " + ended.entry->tensor.ToString() +
                         "; worker " + std::to_string(to.worker) + " sent " +
                         to.entry->tensor.ToString()));
}

}  // namespace byteps

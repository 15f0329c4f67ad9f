// The part of RoundsState for parts whose server is lost, and which live here from then on
// (protocol rule 15).
#include <utility>

#include "cc/server/state/rounds.h"

namespace byteps {

Status RoundsState::CheckResult(const Push& push, bool* is_needed) const {
  const FrameHeader& header = push.header;
  *is_needed = false;
  std::string expected;
  bool is_wrong = header.round >= round_;
  for (const Inherited& inherited : inherited_) {
    if (inherited.is_here) continue;
    const uint64_t round = inherited.ended.round;
    *is_needed = header.round == round && header.worker == inherited.from;
    if (*is_needed) return OkStatus();
    is_wrong = is_wrong || header.round == round;
    expected += (expected.empty() ? "; that of round " : ", that of round ") +
                std::to_string(round) + " is to come from worker " + std::to_string(inherited.from);
  }
  // One that comes twice, because a connection has broken, is read and dropped.
  if (expected.empty() || !is_wrong) return OkStatus();
  return InvalidArgument("sent the result of round " + std::to_string(header.round) + " of part " +
                         std::to_string(options_.part) + " of tensor \"" + options_.tensor_name +
                         "\"" + expected);
}

void RoundsState::EndResult(const Push& push, AggregationResult result,
                            std::vector<Reply>* replies) {
  Inherited* const inherited = FindInherited(push.header.round);
  if (inherited == nullptr || inherited->is_here) return;
  inherited->is_here = true;
  inherited->ended.entry = push.entry;
  inherited->ended.result = std::move(result);
  for (const Contribution& waiting : std::exchange(inherited->waiting, {}))
    HandOut(InheritedReply(*inherited, waiting), replies);
}

// Null if there is none of this round.
RoundsState::Inherited* RoundsState::FindInherited(uint64_t round) {
  for (Inherited& inherited : inherited_) {
    if (inherited.ended.round == round && round < round_) return &inherited;
  }
  return nullptr;
}

// `late` is not summed: others have the result of its round.
void RoundsState::AnswerInherited(Inherited* inherited, Contribution late,
                                  std::vector<Reply>* replies) {
  if (inherited->is_here) return HandOut(InheritedReply(*inherited, late), replies);
  for (Contribution& waiting : inherited->waiting) {
    if (waiting.worker != late.worker) continue;
    waiting = std::move(late);  // its connection has broken
    return;
  }
  inherited->waiting.push_back(std::move(late));
}

void RoundsState::FailInherited(Inherited* inherited, const Status& status,
                                std::vector<Reply>* replies) {
  for (const Contribution& waiting : std::exchange(inherited->waiting, {}))
    HandOut(ErrorReply(waiting, inherited->ended.round, status), replies);
}

Reply RoundsState::InheritedReply(const Inherited& inherited, const Contribution& to) const {
  const Ended& ended = inherited.ended;
  if (to.entry == ended.entry) return EndedReply(to, ended);
  return ErrorReply(
      to, ended.round,
      FailedPrecondition(Title(ended.round) + " has ended with " + ended.entry->tensor.ToString() +
                         "; worker " + std::to_string(to.worker) + " sent " +
                         to.entry->tensor.ToString()));
}

}  // namespace byteps

// The part of RoundsState for others that have ended or been lost, and for workers that give a
// round up.
#include <memory>
#include <vector>

#include "cc/server/state/rounds.h"

namespace byteps {

void RoundsState::Withdraw(int32_t worker, const TableEntry& entry, uint64_t round,
                           const Status& status, const Event& event, std::vector<Reply>* replies) {
  departed_ = event.departed;
  if (round < round_ || !Contributes(entry, worker)) return;
  if (round == round_ && cause_ != Cause::kNone) return;
  const uint64_t first = cause_ == Cause::kNone ? round_ : round_ + 1;
  withdrawn_ = std::make_unique<Withdrawn>(Withdrawn{worker, first, round, status});
  if (round > round_) {
    if (cause_ == Cause::kNone && HasContributions())
      FailRound(Cause::kOther, DescribeWithdrawal(round_), replies);
    OpenRound(round, worker, replies);
  }
  FailRound(Cause::kOther, DescribeWithdrawal(round), replies);
}

void RoundsState::OnLost(const Event& event, std::vector<Reply>* replies) {
  departed_ = event.departed;
  const Status& lost = event.departed->lost;
  for (Inherited& inherited : inherited_) FailInherited(&inherited, lost, replies);
  if (cause_ != Cause::kNone || !HasContributions()) return;
  FailRound(Cause::kOther, Status(lost.code(), Title(round_) + ": " + lost.message()), replies);
}

void RoundsState::OnDeparted(const std::vector<DepartedWorker>& departed, const Event& event,
                             std::vector<Reply>* replies) {
  departed_ = event.departed;
  if (inherited_.empty() && !HasContributions()) return;
  for (const DepartedWorker& worker : departed) OnOneDeparted(worker, replies);
}

void RoundsState::OnOneDeparted(const DepartedWorker& departed, std::vector<Reply>* replies) {
  const auto [rank, cut_off] = departed;
  for (Inherited& inherited : inherited_) {
    if (!cut_off || inherited.from != rank || inherited.is_here) continue;
    FailInherited(
        &inherited,
        Unavailable(Title(inherited.ended.round) + " has ended on a server that is lost, and " +
                    WorkerName(rank) + ", which has its result, is gone"),
        replies);
  }
  if (cause_ != Cause::kNone || !HasContributions()) return;
  if (!Contributes(*summed_, rank)) return;
  const State state = contributions_[rank].state;
  if (state != State::kAbsent && !(cut_off && state == State::kReceiving)) return;
  departed_rank_ = rank;
  FailRound(Cause::kDeparted, OkStatus(), replies);
}

void RoundsState::GoOnFrom(const PartsMoved::Part& agreed) {
  const uint64_t next_round = agreed.next_round;
  // Another variant of the tensor may have had a part of this number here before.
  if (round_ < next_round && !HasContributions()) {
    CloseRound();
    round_ = next_round;
  }
  first_round_ = next_round;
  is_heir_ = next_round > 0;
  inherited_.clear();
  const auto inherit = [&](uint64_t rounds_before, int32_t from) {
    if (next_round < rounds_before || from < 0) return;
    inherited_.emplace_back();
    inherited_.back().ended.round = next_round - rounds_before;
    inherited_.back().from = from;
  };
  inherit(2, agreed.earlier_from);
  inherit(1, agreed.result_from);
  // What workers have pushed at the least: they get the results of these rounds.
  const uint64_t pushed = inherited_.empty() ? next_round : inherited_[0].ended.round + 1;
  for (int32_t worker = 0; worker < options_.num_workers; ++worker) {
    if (pushed > 0) pushed_rounds_.Advance(worker, pushed - 1);
  }
  pushed_rounds_by_host_.reset();  // to be counted anew
}

}  // namespace byteps

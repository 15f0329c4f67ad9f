// The part of RoundsState for others that have ended or been lost, and for workers that give a
// round up.
#include <memory>
#include <utility>
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
  FailInherited(lost, replies);
  if (cause_ != Cause::kNone || !HasContributions()) return;
  FailRound(Cause::kOther, Status(lost.code(), Title(round_) + ": " + lost.message()), replies);
}

void RoundsState::OnDeparted(const std::vector<DepartedWorker>& departed, const Event& event,
                             std::vector<Reply>* replies) {
  departed_ = event.departed;
  if (inherited_ == nullptr && !HasContributions()) return;
  for (const DepartedWorker& worker : departed) OnOneDeparted(worker, replies);
}

void RoundsState::OnOneDeparted(const DepartedWorker& departed, std::vector<Reply>* replies) {
  const auto [rank, cut_off] = departed;
  if (cut_off && inherited_ != nullptr && inherited_->from == rank && !inherited_->is_here) {
    FailInherited(
        Unavailable(Title(inherited_->ended.round) + " has ended on a server that is lost, and " +
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

void RoundsState::GoOnFrom(uint64_t next_round, int32_t result_from) {
  // Another variant of the tensor may have had a part of this number here before.
  if (round_ < next_round && !HasContributions()) {
    CloseRound();
    round_ = next_round;
  }
  for (int32_t worker = 0; worker < options_.num_workers; ++worker) {
    if (next_round > 0) pushed_rounds_.Advance(worker, next_round - 1);
  }
  first_round_ = next_round;
  pushed_rounds_by_host_.reset();  // to be counted anew
  inherited_.reset();
  if (next_round == 0 || result_from < 0) return;
  inherited_ = std::make_unique<Inherited>();
  inherited_->ended.round = next_round - 1;
  inherited_->from = result_from;
}

}  // namespace byteps

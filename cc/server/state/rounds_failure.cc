// The part of RoundsState for rounds that fail, and for what is said then. Texts name few of many
// workers: each of those who wait gets one.
#include <algorithm>

#include "cc/server/state/rounds.h"

namespace byteps {
namespace {

// Of those who have pushed the same.
constexpr int64_t kMostNamed = 8;

}  // namespace

// Those whose push is still arriving are told at its end.
void RoundsState::FailRound(Cause cause, const Status& failure, std::vector<Reply>* replies) {
  cause_ = cause;
  failure_ = failure;
  sum_.Reset();
  const Status reason = DescribeFailure();
  for (Contribution& contribution : contributions_) {
    if (contribution.state != State::kWaiting) continue;
    HandOut(ErrorReply(contribution, round_, reason), replies);
    contribution.state = State::kAnswered;
    history_.Advance(contribution.worker, round_ + 1);
  }
}

Status RoundsState::DescribeFailure() const {
  if (cause_ == Cause::kDeparted) return DescribeDeparted();
  if (cause_ != Cause::kDisagreement) return failure_;
  return FailedPrecondition(
      "tensor \"" + options_.tensor_name + "\": workers disagree in round " +
      std::to_string(round_) + ": " + DescribeContributions() +
      ". Give every worker the same shape, dtype and operation, or different names.");
}

Status RoundsState::DescribeDeparted() const {
  const auto found = departed_->workers.find(departed_rank_);
  const Status reason = found == departed_->workers.end() ? OkStatus() : found->second;
  const std::string who = Contributors();
  if (!reason.ok()) {
    return Unavailable(Title(round_) + " cannot complete: " + WorkerName(departed_rank_) +
                       " is gone (" + reason.message() + "), and " + who + " waited for it");
  }
  return FailedPrecondition(
      Title(round_) + " cannot complete: " + WorkerName(departed_rank_) +
      " has left the job, and " + who +
      " waited for it. Every worker has to exchange the same tensors before it shuts down.");
}

Status RoundsState::FailureOf(uint64_t round) const {
  if (!last_failure_.ok() && round == last_failed_round_) return last_failure_;
  if (withdrawn_ != nullptr && withdrawn_->first <= round && round <= withdrawn_->last)
    return DescribeWithdrawal(round);
  if (round < first_round_) {
    return Unavailable(Title(round) +
                       " is over on another server, before one was lost or came back, and no "
                       "worker has its result for the others");
  }
  return FailedPrecondition(Title(round) + " has been given up: other workers are in round " +
                            std::to_string(round_) + " already");
}

Status RoundsState::DescribeWithdrawal(uint64_t round) const {
  return Status(withdrawn_->reason.code(), Title(round) + ": " + WorkerName(withdrawn_->worker) +
                                               " has given it up: " + withdrawn_->reason.message());
}

std::string RoundsState::Title(uint64_t round) const {
  return "tensor \"" + options_.tensor_name + "\": round " + std::to_string(round);
}

// Remembers who is told of.
void RoundsState::Name(const Contribution& contribution, int32_t worker) {
  if (named_.size() >= 2 * kMostNamed) return;
  const auto sent_the_same = [&](int32_t other) {
    return contributions_[other].entry == contribution.entry;
  };
  if (std::count_if(named_.begin(), named_.end(), sent_the_same) < kMostNamed)
    named_.push_back(worker);
}

std::string RoundsState::DescribeContributions() const {
  std::vector<int32_t> named = named_;
  std::sort(named.begin(), named.end());
  std::string text;
  for (const int32_t rank : named) {
    if (!text.empty()) text += "; ";
    text += WorkerName(rank) + " sent " + contributions_[rank].entry->tensor.ToString();
  }
  const size_t more = begun_ - named.size();
  return more == 0 ? text : text + "; " + std::to_string(more) + " more sent one of these";
}

// "worker 0, worker 2": those in the round, but for one that has departed.
std::string RoundsState::Contributors() const {
  const auto is_gone = [this](int32_t rank) {
    return cause_ == Cause::kDeparted && rank == departed_rank_;
  };
  std::vector<int32_t> named = named_;
  std::sort(named.begin(), named.end());
  size_t more = begun_ - named.size();
  if (cause_ == Cause::kDeparted && contributions_[departed_rank_].state != State::kAbsent) --more;
  std::string text;
  for (const int32_t rank : named) {
    if (is_gone(rank)) {
      ++more;
      continue;
    }
    if (!text.empty()) text += ", ";
    text += WorkerName(rank);
  }
  if (more > 0) text += (text.empty() ? "" : " and ") + std::to_string(more) + " more";
  return text.empty() ? "nobody" : text;
}

}  // namespace byteps

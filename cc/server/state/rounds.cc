#include "cc/server/state/rounds.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace byteps {

namespace {

// What nobody reaches: such rounds have all been pushed, and answered.
constexpr uint64_t kNever = std::numeric_limits<uint64_t>::max() / 2;

}  // namespace

RoundsState::RoundsState(const PartOptions& options, PartSum* sum)
    : options_(options),
      key_(KeyOfName(options.tensor_name)),
      members_(Members::Of(options.tensor_name)),
      sum_(*sum),
      workers_(options_.num_workers),
      pushed_rounds_(options_.num_workers),
      history_(options_.num_workers) {
  for (int32_t worker = 0; worker < options_.num_workers; ++worker) {
    if (members_.Contain(worker)) continue;
    pushed_rounds_.Advance(worker, kNever);
    history_.Advance(worker, kNever);
  }
}

void RoundsState::Contribution::Fill(const Push& push) {
  entry = push.entry;
  from = push.from;
  worker = push.header.worker;
  generation = push.generation;
  priority = push.header.priority;
  placement_version = push.header.placement_version;
  begin_time_ns = push.begin_time_ns;
}

Status RoundsState::Begin(const Push& push, const Event& event, std::shared_ptr<PayloadSink>* sink,
                          std::vector<Reply>* replies) {
  departed_ = event.departed;
  const int32_t worker = push.header.worker;
  const uint64_t round = push.header.round;
  // Its exchange has failed on the worker, which has gone on, and the newer push has overtaken it:
  // it comes too late (protocol rule 31).
  if (round + 1 < pushed_rounds_.of(worker)) return OkStatus();
  // Nor does it know that others have given up more than one round since, at the server before.
  if (round + 1 < first_round_ && FindInherited(round) == nullptr) return OkStatus();
  // Else it has given the round of that push up meanwhile, and begins another.
  const bool was_cut_off = std::exchange(workers_[worker].was_cut_off, false);
  if (was_cut_off && round + 1 == pushed_rounds_.of(worker)) return GoOn(push, sink);
  BYTEPS_RETURN_IF_ERROR(CheckOrder(push));
  Admit(push);
  if (round < round_) return OkStatus();  // too late: End says so
  if (round > round_) OpenRound(round, worker, replies);
  if (!HasContributions()) contributions_.resize(options_.num_workers);
  ++begun_;
  Contribution& contribution = contributions_[worker];
  contribution.state = State::kReceiving;
  contribution.Fill(push);
  Name(contribution, worker);
  if (cause_ == Cause::kNone) CheckRound(push, replies);
  if (cause_ != Cause::kNone) return OkStatus();
  summed_ = push.entry;
  const Status started = sum_.Begin(push, &contribution.incoming);
  *sink = contribution.incoming.sink;
  if (!started.ok()) {
    FailRound(Cause::kOther, Status(started.code(), Title(round) + ": " + started.message()),
              replies);
  }
  return OkStatus();
}

Status RoundsState::CheckOrder(const Push& push) const {
  if (push.header.payload_offset != 0) {
    return InvalidArgument("pushed part " + std::to_string(options_.part) + " of tensor \"" +
                           options_.tensor_name + "\" from byte " +
                           std::to_string(push.header.payload_offset) +
                           " on, without having begun it");
  }
  if (push.header.round < pushed_rounds_.of(push.header.worker)) {
    return InvalidArgument("pushed part " + std::to_string(options_.part) + " of tensor \"" +
                           options_.tensor_name + "\" for round " +
                           std::to_string(push.header.round) + " twice");
  }
  return OkStatus();
}

// A gap is allowed: an exchange can fail on its worker before this part has left.
void RoundsState::Admit(const Push& push) {
  const int32_t worker = push.header.worker;
  NotePush(*push.entry, worker, push.header.round);
  Standing& standing = workers_[worker];
  standing.from = push.from.get();
  standing.placement_version = push.header.placement_version;
  standing.priority = push.header.priority;
  // It has the replies to its pushes before.
  standing.generation = 0;
  if (!kept_.empty()) kept_.erase(worker);
  if (ended_ != nullptr && Watermark(*push.entry) > ended_->round) ended_.reset();
  history_.Advance(worker, push.header.round);
}

void RoundsState::NotePush(const TableEntry& entry, int32_t worker, uint64_t round) {
  pushed_rounds_.Advance(worker, round + 1);
  const HostMap& hosts = *options_.hosts;
  const auto owner = [&](int32_t host) { return hosts.OwnerOn(host, entry.key, options_.part); };
  if (pushed_rounds_by_host_ != nullptr) {
    const int32_t host = hosts.HostOf(worker);
    if (owner(host) == worker) pushed_rounds_by_host_->Advance(host, round + 1);
  } else if (entry.tensor.per_host) {
    pushed_rounds_by_host_ = std::make_unique<LowestRound>(hosts.num_hosts());
    for (int32_t host = 0; host < hosts.num_hosts(); ++host)
      pushed_rounds_by_host_->Advance(host, pushed_rounds_.of(owner(host)));
  }
}

void RoundsState::OpenRound(uint64_t round, int32_t by, std::vector<Reply>* replies) {
  if (cause_ == Cause::kNone && HasContributions()) {
    const Status superseded = FailedPrecondition(
        Title(round_) + " was given up: " + WorkerName(by) + " is in round " +
        std::to_string(round) + " already, while " + Contributors() + " waited in round " +
        std::to_string(round_) + ". The exchange failed on " + WorkerName(by) +
        ", or it does not exchange this tensor as often as the others");
    FailRound(Cause::kOther, superseded, replies);
  }
  if (cause_ != Cause::kNone) {
    last_failure_ = DescribeFailure();
    last_failed_round_ = round_;
  }
  CloseRound();
  round_ = round;
}

// Whether the round can complete, now that `push` is in contributions_.
void RoundsState::CheckRound(const Push& push, std::vector<Reply>* replies) {
  if (departed_ != nullptr) {
    const Status& lost = departed_->lost;
    if (!lost.ok()) {
      return FailRound(Cause::kOther, Status(lost.code(), Title(round_) + ": " + lost.message()),
                       replies);
    }
    // Who goes later is found by OnDeparted.
    const int32_t departed = begun_ > 1 ? -1 : FindDeparted(*push.entry);
    if (departed >= 0) {
      departed_rank_ = departed;
      return FailRound(Cause::kDeparted, OkStatus(), replies);
    }
  }
  const Status without = CheckJoined(*push.entry);
  if (!without.ok()) return FailRound(Cause::kOther, without, replies);
  // Those before agree, or the round would have failed.
  if (contributions_[named_[0]].entry != push.entry)
    FailRound(Cause::kDisagreement, OkStatus(), replies);
}

// One that should have contributed to the open round.
int32_t RoundsState::FindDeparted(const TableEntry& entry) const {
  for (const auto& [rank, reason] : departed_->workers) {
    if (contributions_[rank].state == State::kAbsent && Contributes(entry, rank)) return rank;
  }
  return -1;
}

PushOutcome RoundsState::End(const Push& push, const Event& event, std::vector<Reply>* replies) {
  const uint64_t round = push.header.round;
  departed_ = event.departed;
  PushOutcome outcome;
  if (!IsOpen(round)) {
    EndLate(push, event, &outcome, replies);
    return outcome;
  }
  Contribution& contribution = contributions_[push.header.worker];
  contribution.state = State::kWaiting;
  contribution.incoming = {};
  contribution.receive_time_ns = event.now_ns;
  outcome.counted = true;
  const Status taken = sum_.End(push.header.worker);
  if (!taken.ok()) {
    FailRound(Cause::kOther,
              Status(taken.code(),
                     Title(round) + ": " + WorkerName(push.header.worker) + ": " + taken.message()),
              replies);
    return outcome;
  }
  ++waiting_;
  if (grace_.has_begun()) grace_.NoteLag(event.steady_ns - grace_.begin_ns());
  if (MayEnd(event.steady_ns, &outcome)) {
    CompleteRound(&outcome, replies);
  } else if (waiting_ == 1) {
    outcome.asks_all = push.entry->tensor.grace_ms != kNoGrace;
    if (options_.asks || outcome.asks_all) outcome.lacking = Lacking(*push.entry);
  }
  return outcome;
}

PushOutcome RoundsState::OnTime(const Event& event, std::vector<Reply>* replies) {
  departed_ = event.departed;
  PushOutcome outcome;
  if (MayEnd(event.steady_ns, &outcome)) CompleteRound(&outcome, replies);
  return outcome;
}

PushOutcome RoundsState::OnJoined(const Event& event, std::vector<Reply>* replies) {
  departed_ = event.departed;
  PushOutcome outcome;
  if (cause_ != Cause::kNone || !HasContributions()) return outcome;
  const Status status = CheckJoined(*summed_);
  if (!status.ok())
    FailRound(Cause::kOther, status, replies);
  else if (MayEnd(event.steady_ns, &outcome))
    CompleteRound(&outcome, replies);
  return outcome;
}

// Whether the round can complete, and waits for nobody any more.
bool RoundsState::MayEnd(int64_t steady_ns, PushOutcome* outcome) {
  if (!CanComplete()) return false;
  if (!HasGrace() || waiting_ == options_.num_workers) return true;
  if (!grace_.has_begun()) grace_.Begin(summed_->tensor.grace_ms, steady_ns);
  if (grace_.IsOver(steady_ns)) return true;
  outcome->deadline_ns = grace_.end_ns();
  return false;
}

// Its round has ended, or failed. The open round may have waited for a worker that was so far
// behind.
void RoundsState::EndLate(const Push& push, const Event& event, PushOutcome* outcome,
                          std::vector<Reply>* replies) {
  const uint64_t round = push.header.round;
  const int32_t worker = push.header.worker;
  Contribution late;
  late.Fill(push);
  late.receive_time_ns = event.now_ns;
  Inherited* const inherited = FindInherited(round);
  const RoundHistory::Ended* ended = round < round_ ? history_.Find(round) : nullptr;
  if (inherited != nullptr) {
    AnswerInherited(inherited, std::move(late), replies);
  } else if (ended != nullptr && ended->entry == push.entry) {
    if (ended->grace_begin_ns != 0) grace_.NoteLag(event.steady_ns - ended->grace_begin_ns);
    HandOut(ResultReply(late, round, ended->result), replies);
    outcome->arrivals.push_back(
        {worker, late.receive_time_ns - ended->first_receive_time_ns, true});
  } else if (ended != nullptr) {
    const Status status = FailedPrecondition(
        Title(round) + " has ended with " + ended->entry->tensor.ToString() + "; " +
        WorkerName(worker) + " sent " + push.entry->tensor.ToString() + ", later than the others");
    HandOut(ErrorReply(late, round, status), replies);
  } else {
    HandOut(ErrorReply(late, round, round == round_ ? DescribeFailure() : FailureOf(round)),
            replies);
    if (round == round_) contributions_[worker].state = State::kAnswered;
  }
  history_.Advance(worker, round + 1);
  if (MayEnd(event.steady_ns, outcome)) CompleteRound(outcome, replies);
}

std::vector<int32_t> RoundsState::Lacking(const TableEntry& entry) const {
  std::vector<int32_t> lacking;
  for (int32_t worker = 0; worker < options_.num_workers; ++worker) {
    if (contributions_[worker].state == State::kAbsent && Contributes(entry, worker))
      lacking.push_back(worker);
  }
  return lacking;
}

bool RoundsState::CanComplete() const {
  if (cause_ != Cause::kNone || waiting_ == 0) return false;
  const int32_t absent = CountAbsentJoined();
  if (!sum_.IsComplete(waiting_ + absent)) return false;
  if (absent > 0 && !CheckJoined(*summed_).ok()) return false;  // OnJoined ends it in a moment
  for (int32_t worker = 0; worker < options_.num_workers; ++worker) {
    if (contributions_[worker].state != State::kWaiting && IsMissed(worker)) return false;
  }
  return true;
}

// Whether a worker would be too far behind if the round ended without it. Who was not in the last
// round of a quorum is in this one, or what it has done would wait for ever.
bool RoundsState::IsMissed(int32_t worker) const {
  if (HasGrace() && (is_heir_ || std::count(missed_.begin(), missed_.end(), worker) > 0))
    return true;
  const int32_t max_lag = summed_->tensor.IsQuorumSum() ? 1 : options_.max_lag;
  return history_.next(worker) + max_lag < round_ + 1 && Contributes(*summed_, worker);
}

void RoundsState::CompleteRound(PushOutcome* outcome, std::vector<Reply>* replies) {
  AggregationResult result;
  const Status status = sum_.Finish(round_, &result);
  if (!status.ok()) {
    return FailRound(Cause::kOther, Status(status.code(), Title(round_) + ": " + status.message()),
                     replies);
  }
  RoundHistory::Ended ended{summed_, result, std::numeric_limits<int64_t>::max(),
                            grace_.has_begun() ? grace_.begin_ns() : 0};
  // With backup workers the next round may end before all have the result of this one.
  const bool is_kept_for_each = summed_->tensor.backup_workers > 0;
  missed_.clear();
  for (int32_t worker = 0; worker < options_.num_workers; ++worker) {
    const Contribution& contribution = contributions_[worker];
    if (contribution.state != State::kWaiting) {
      if (Contributes(*summed_, worker)) missed_.push_back(worker);
      continue;
    }
    Reply reply = ResultReply(contribution, round_, result);
    reply.ends_round = true;
    if (is_kept_for_each) {
      HandOut(std::move(reply), replies);
    } else {
      workers_[worker].generation = static_cast<uint32_t>(reply.generation);
      replies->push_back(std::move(reply));
    }
    ended.first_receive_time_ns =
        std::min(ended.first_receive_time_ns, contribution.receive_time_ns);
    outcome->arrivals.push_back({worker, contribution.receive_time_ns, false});
    history_.Advance(worker, round_ + 1);
  }
  for (Arrival& arrival : outcome->arrivals) {
    if (!arrival.dropped) arrival.lag_ns -= ended.first_receive_time_ns;
  }
  if (!missed_.empty()) history_.Keep(round_, std::move(ended));
  if (!is_kept_for_each)
    ended_ = std::make_unique<Ended>(Ended{round_, summed_, std::move(result)});
  outcome->round_complete = true;
  is_heir_ = false;
  // Who waits for one of these is behind, and the others have gone on without it.
  inherited_.erase(std::remove_if(inherited_.begin(), inherited_.end(),
                                  [](const Inherited& each) { return each.waiting.empty(); }),
                   inherited_.end());
  CloseRound();
  ++round_;
}

void RoundsState::CloseRound() {
  std::vector<Contribution>().swap(contributions_);  // many parts wait for their next round
  named_.clear();
  begun_ = waiting_ = 0;
  cause_ = Cause::kNone;
  failure_ = OkStatus();
  grace_.EndRound();
}

}  // namespace byteps

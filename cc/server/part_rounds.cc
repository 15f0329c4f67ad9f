#include "cc/server/part_rounds.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cc/base/clock.h"

namespace byteps {
namespace {

std::string WorkerName(int64_t rank) { return "worker " + std::to_string(rank); }

}  // namespace

Participants ParticipantsOf(const TableEntry& entry, uint32_t part, const HostMap& hosts,
                            bool in_rank_order) {
  Participants participants;
  participants.num_workers = hosts.num_workers();
  participants.contributions = participants.num_workers;
  participants.root = entry.tensor.root_rank;
  if (entry.tensor.per_host) {
    participants.contributions = hosts.num_hosts();
    participants.root = hosts.OwnerOn(hosts.HostOf(entry.tensor.root_rank), entry.key, part);
  }
  // By host where hosts contribute: who speaks for a host depends on how a tensor is cut.
  for (int32_t i = 0; in_rank_order && i < participants.contributions; ++i)
    participants.order.push_back(entry.tensor.per_host ? hosts.OwnerOn(i, entry.key, part) : i);
  return participants;
}

PartRounds::PartRounds(Options options)
    : options_(std::move(options)),
      contributions_(options_.num_workers),
      workers_(options_.num_workers),
      history_(options_.num_workers) {}

Status PartRounds::Begin(const Push& push, std::shared_ptr<PayloadSink>* sink,
                         std::vector<Reply>* replies) {
  const int32_t worker = push.header.worker;
  const uint64_t round = push.header.round;
  std::lock_guard<std::mutex> lock(mutex_);
  Standing& standing = workers_[worker];
  // Else it has given the round of that push up meanwhile, and begins another.
  const bool goes_on = standing.was_cut_off && round + 1 == standing.pushed_rounds;
  standing.was_cut_off = false;
  if (goes_on) return GoOn(push, sink);
  BYTEPS_RETURN_IF_ERROR(Admit(push));
  if (round < round_) return OkStatus();  // too late: End says so
  if (round > round_) OpenRound(round, worker, replies);
  Contribution& contribution = contributions_[worker];
  contribution.state = State::kReceiving;
  contribution.entry = push.entry;
  contribution.from = push.from;
  contribution.priority = push.header.priority;
  contribution.placement_version = push.header.placement_version;
  contribution.begin_time_ns = push.begin_time_ns;
  if (cause_ == Cause::kNone) CheckRound(push, replies);
  if (cause_ != Cause::kNone) return OkStatus();
  const Status started = StartAggregation(push, sink);
  if (*sink != nullptr) {
    *sink = contribution.sink =
        std::make_shared<CountedSink>(std::move(*sink), push.header.payload_bytes);
  }
  if (!started.ok()) {
    FailRound(Cause::kOther, Status(started.code(), Title(round) + ": " + started.message()),
              replies);
  }
  return OkStatus();
}

Status PartRounds::Admit(const Push& push) {
  Standing& worker = workers_[push.header.worker];
  if (push.header.payload_offset != 0) {
    return InvalidArgument(push.from->name() + " pushed part " + std::to_string(options_.part) +
                           " of tensor \"" + options_.tensor_name + "\" from byte " +
                           std::to_string(push.header.payload_offset) +
                           " on, without having begun it");
  }
  if (push.header.round < worker.pushed_rounds) {
    return InvalidArgument(
        push.from->name() + " pushed part " + std::to_string(options_.part) + " of tensor \"" +
        options_.tensor_name + "\" for round " + std::to_string(push.header.round) +
        " after it had pushed it for round " + std::to_string(worker.pushed_rounds - 1) +
        "; every round is pushed once, in order");
  }
  // A gap is allowed: an exchange can fail on its worker before this part has left.
  worker.pushed_rounds = push.header.round + 1;
  worker.from = push.from;
  worker.last_reply = Reply();  // it has that one
  history_.Advance(push.header.worker, push.header.round);
  return OkStatus();
}

void PartRounds::OpenRound(uint64_t round, int32_t by, std::vector<Reply>* replies) {
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
void PartRounds::CheckRound(const Push& push, std::vector<Reply>* replies) {
  if (options_.membership->AnyGone()) {
    const Status lost = options_.membership->lost();
    if (!lost.ok()) {
      return FailRound(Cause::kOther, Status(lost.code(), Title(round_) + ": " + lost.message()),
                       replies);
    }
    for (int32_t rank = 0; rank < options_.num_workers; ++rank) {
      if (contributions_[rank].state != State::kAbsent || !options_.membership->HasGone(rank) ||
          !Contributes(*push.entry, rank))
        continue;
      gone_rank_ = rank;
      return FailRound(Cause::kGone, OkStatus(), replies);
    }
  }
  for (const Contribution& other : contributions_) {
    if (other.state != State::kAbsent && other.entry != push.entry) {
      return FailRound(Cause::kDisagreement, OkStatus(), replies);
    }
  }
}

Status PartRounds::StartAggregation(const Push& push, std::shared_ptr<PayloadSink>* sink) {
  if (aggregation_entry_ != push.entry) {
    Participants participants =
        ParticipantsOf(*push.entry, options_.part, *options_.hosts, options_.in_rank_order);
    participants.max_lag = options_.max_lag;
    aggregation_ =
        NewAggregation(push.entry->tensor, push.entry->parts[options_.part].element_count,
                       participants, options_.memory);
    aggregation_entry_ = push.entry;
  }
  return aggregation_->Begin(push.header.worker, push.header.row_count, push.header.payload_bytes,
                             sink);
}

PartRounds::Outcome PartRounds::End(const Push& push, std::vector<Reply>* replies) {
  const uint64_t round = push.header.round;
  std::lock_guard<std::mutex> lock(mutex_);
  Outcome outcome;
  if (!IsOpen(round)) {
    EndLate(push, &outcome, replies);
    return outcome;
  }
  Contribution& contribution = contributions_[push.header.worker];
  contribution.state = State::kWaiting;
  contribution.sink = nullptr;
  contribution.receive_time_ns = WallNanos();
  outcome.counted = true;
  aggregation_->End(push.header.worker);
  ++waiting_;
  if (CanComplete()) {
    CompleteRound(&outcome, replies);
  } else if (options_.asks) {
    outcome.lacking = Lacking(*push.entry);
  }
  return outcome;
}

// Its round has ended, or failed. The open round may have waited for a worker that was so far
// behind.
void PartRounds::EndLate(const Push& push, Outcome* outcome, std::vector<Reply>* replies) {
  const uint64_t round = push.header.round;
  const int32_t worker = push.header.worker;
  Contribution late;
  late.entry = push.entry;
  late.from = push.from;
  late.priority = push.header.priority;
  late.placement_version = push.header.placement_version;
  late.begin_time_ns = push.begin_time_ns;
  late.receive_time_ns = WallNanos();
  if (IsInherited(round)) return AnswerInherited(std::move(late), replies);
  const RoundHistory::Ended* ended = round < round_ ? history_.Find(round) : nullptr;
  if (ended != nullptr && ended->entry == push.entry) {
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
  if (CanComplete()) CompleteRound(outcome, replies);
}

std::vector<int32_t> PartRounds::Lacking(const TableEntry& entry) const {
  std::vector<int32_t> lacking;
  for (int32_t worker = 0; worker < options_.num_workers; ++worker) {
    if (contributions_[worker].state == State::kAbsent && Contributes(entry, worker))
      lacking.push_back(worker);
  }
  return lacking;
}

bool PartRounds::CanComplete() const {
  if (cause_ != Cause::kNone || waiting_ == 0 || !aggregation_->IsComplete(waiting_)) return false;
  for (int32_t worker = 0; worker < options_.num_workers; ++worker) {
    if (contributions_[worker].state != State::kWaiting &&
        history_.next(worker) + options_.max_lag < round_ + 1 &&
        Contributes(*aggregation_entry_, worker))
      return false;
  }
  return true;
}

void PartRounds::CompleteRound(Outcome* outcome, std::vector<Reply>* replies) {
  AggregationResult result;
  const Status status = aggregation_->Finish(&result);
  if (!status.ok()) {
    return FailRound(Cause::kOther, Status(status.code(), Title(round_) + ": " + status.message()),
                     replies);
  }
  RoundHistory::Ended ended{aggregation_entry_, result, std::numeric_limits<int64_t>::max()};
  bool is_missed = false;
  for (int32_t worker = 0; worker < options_.num_workers; ++worker) {
    const Contribution& contribution = contributions_[worker];
    if (contribution.state != State::kWaiting) {
      is_missed = is_missed || Contributes(*aggregation_entry_, worker);
      continue;
    }
    HandOut(ResultReply(contribution, round_, result), replies);
    ended.first_receive_time_ns =
        std::min(ended.first_receive_time_ns, contribution.receive_time_ns);
    outcome->arrivals.push_back({worker, contribution.receive_time_ns, false});
    history_.Advance(worker, round_ + 1);
  }
  for (Arrival& arrival : outcome->arrivals) {
    if (!arrival.dropped) arrival.lag_ns -= ended.first_receive_time_ns;
  }
  if (is_missed) history_.Keep(round_, std::move(ended));
  outcome->round_complete = true;
  inherited_.reset();
  CloseRound();
  ++round_;
}

// Those whose push is still arriving are told at its end.
void PartRounds::FailRound(Cause cause, const Status& failure, std::vector<Reply>* replies) {
  cause_ = cause;
  failure_ = failure;
  if (aggregation_ != nullptr) aggregation_->Reset();
  for (Contribution& contribution : contributions_) {
    if (contribution.state != State::kWaiting) continue;
    HandOut(ErrorReply(contribution, round_, DescribeFailure()), replies);
    contribution.state = State::kAnswered;
    history_.Advance(contribution.from->rank(), round_ + 1);
  }
}

void PartRounds::CloseRound() {
  for (Contribution& contribution : contributions_) contribution = Contribution();
  waiting_ = 0;
  cause_ = Cause::kNone;
  failure_ = OkStatus();
}

void PartRounds::Withdraw(int32_t worker, const TableEntry& entry, uint64_t round,
                          const Status& status, std::vector<Reply>* replies) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (round < round_ || !Contributes(entry, worker)) return;
  if (round > round_) OpenRound(round, worker, replies);
  if (cause_ != Cause::kNone) return;
  FailRound(Cause::kOther,
            Status(status.code(), Title(round) + ": " + WorkerName(worker) +
                                      " has given it up: " + status.message()),
            replies);
}

void PartRounds::OnLost(std::vector<Reply>* replies) {
  const Status lost = options_.membership->lost();
  std::lock_guard<std::mutex> lock(mutex_);
  FailInherited(lost, replies);
  if (cause_ != Cause::kNone || !HasContributions()) return;
  FailRound(Cause::kOther, Status(lost.code(), Title(round_) + ": " + lost.message()), replies);
}

void PartRounds::OnGone(int32_t rank, bool cut_off, std::vector<Reply>* replies) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (cut_off && inherited_ != nullptr && inherited_->from == rank && !inherited_->is_here) {
    FailInherited(
        Unavailable(Title(inherited_->round) + " has ended on a server that is lost, and " +
                    WorkerName(rank) + ", which has its result, is gone"),
        replies);
  }
  if (cause_ != Cause::kNone || !HasContributions()) return;
  if (!Contributes(*aggregation_entry_, rank)) return;
  const State state = contributions_[rank].state;
  if (state != State::kAbsent && !(cut_off && state == State::kReceiving)) return;
  gone_rank_ = rank;
  FailRound(Cause::kGone, OkStatus(), replies);
}

Status PartRounds::DescribeFailure() const {
  if (cause_ == Cause::kGone) return DescribeGone();
  if (cause_ != Cause::kDisagreement) return failure_;
  return FailedPrecondition(
      "tensor \"" + options_.tensor_name + "\": workers disagree in round " +
      std::to_string(round_) + ": " + WhoSentWhat() +
      ". Give every worker the same shape, dtype and operation, or different names.");
}

Status PartRounds::DescribeGone() const {
  const Status reason = options_.membership->ReasonOf(gone_rank_);
  const std::string who = Contributors();
  if (!reason.ok()) {
    return Unavailable(Title(round_) + " cannot complete: " + WorkerName(gone_rank_) +
                       " is gone (" + reason.message() + "), and " + who + " waited for it");
  }
  return FailedPrecondition(
      Title(round_) + " cannot complete: " + WorkerName(gone_rank_) + " has left the job, and " +
      who + " waited for it. Every worker has to exchange the same tensors before it shuts down.");
}

Status PartRounds::FailureOf(uint64_t round) const {
  if (!last_failure_.ok() && round == last_failed_round_) return last_failure_;
  return FailedPrecondition(Title(round) + " has been given up: other workers are in round " +
                            std::to_string(round_) + " already");
}

std::string PartRounds::Title(uint64_t round) const {
  return "tensor \"" + options_.tensor_name + "\": round " + std::to_string(round);
}

std::string PartRounds::WhoSentWhat() const {
  std::string text;
  for (size_t rank = 0; rank < contributions_.size(); ++rank) {
    const Contribution& contribution = contributions_[rank];
    if (contribution.state == State::kAbsent) continue;
    if (!text.empty()) text += "; ";
    text += WorkerName(rank) + " sent " + contribution.entry->tensor.ToString();
  }
  return text;
}

// "worker 0, worker 2": those in the round, but for one that has gone.
std::string PartRounds::Contributors() const {
  std::string text;
  for (size_t rank = 0; rank < contributions_.size(); ++rank) {
    const bool gone = cause_ == Cause::kGone && static_cast<int32_t>(rank) == gone_rank_;
    if (contributions_[rank].state == State::kAbsent || gone) continue;
    if (!text.empty()) text += ", ";
    text += WorkerName(rank);
  }
  return text.empty() ? "nobody" : text;
}

bool PartRounds::HasContributions() const {
  return std::any_of(
      contributions_.begin(), contributions_.end(),
      [](const Contribution& contribution) { return contribution.state != State::kAbsent; });
}

bool PartRounds::Contributes(const TableEntry& entry, int32_t worker) const {
  return !entry.tensor.per_host || options_.hosts->OwnerOn(options_.hosts->HostOf(worker),
                                                           entry.key, options_.part) == worker;
}

// A worker pushes a round only when it, and all for whom it pushes, have the result of the one
// before.
uint64_t PartRounds::Watermark(const TableEntry& entry) const {
  uint64_t pushed_rounds = std::numeric_limits<uint64_t>::max();
  for (int32_t worker = 0; worker < options_.num_workers; ++worker) {
    if (Contributes(entry, worker))
      pushed_rounds = std::min(pushed_rounds, workers_[worker].pushed_rounds);
  }
  return pushed_rounds == 0 ? 0 : pushed_rounds - 1;
}

Reply PartRounds::NewReply(const Contribution& to, uint64_t round) const {
  Reply reply;
  reply.to = to.from;
  reply.generation = to.from->generation();
  FrameHeader& header = reply.frame.header;
  header.type = FrameType::kReply;
  header.epoch = options_.epoch;
  header.key = to.entry->key;
  header.part = options_.part;
  header.variant = to.entry->variant;
  header.round = round;
  header.placement_version = to.placement_version;
  header.worker = to.from->rank();
  header.priority = to.priority;
  header.watermark = Watermark(*to.entry);
  header.begin_time_ns = to.begin_time_ns;
  header.receive_time_ns = to.receive_time_ns;
  return reply;
}

Reply PartRounds::ResultReply(const Contribution& to, uint64_t round,
                              const AggregationResult& result) const {
  Reply reply = NewReply(to, round);
  reply.frame.header.element_count = result.element_count;
  if (result.payload_bytes > 0 && aggregation_->SendsResultTo(to.from->rank())) {
    reply.frame.header.payload_bytes = result.payload_bytes;
    reply.frame.payload = result.buffer->data();
    reply.frame.keep_alive = result.buffer;
  }
  return reply;
}

Reply PartRounds::ErrorReply(const Contribution& to, uint64_t round, const Status& status) const {
  Reply reply = NewReply(to, round);
  auto text = std::make_shared<const std::string>(status.message().substr(0, kMaxErrorTextBytes));
  reply.frame.header.status = status.code();
  reply.frame.header.payload_bytes = text->size();
  reply.frame.payload = text->data();
  reply.frame.keep_alive = std::move(text);
  return reply;
}

}  // namespace byteps

// The part of Worker for what the coordinator says, and for what ends the job.
#include <algorithm>
#include <string>
#include <utility>

#include "cc/base/clock.h"
#include "cc/base/fork.h"
#include "cc/base/logging.h"
#include "cc/base/seconds.h"
#include "cc/worker/worker_transaction.h"

namespace byteps {

void Worker::OnControl(ControlMessage message) {
  if (const auto* relay = std::get_if<Relay>(&message)) return OnRelay(*relay);
  if (const auto* notice = std::get_if<StallNotice>(&message)) return OnStallNotice(*notice);
  if (const auto* lost = std::get_if<PeerLost>(&message)) {
    {
      MutexLock lock(mutex_);
      coordinator_is_lost_ = coordinator_is_lost_ || lost->role == Role::kCoordinator;
    }
    return Fail(Unavailable(lost->description), LostPeer{lost->role, lost->rank});
  }
  Status status;
  {
    Transaction transaction(this);
    status = OnDecision(&message, transaction.effects());
  }
  if (!status.ok()) Fail(status);
}

Status Worker::OnDecision(ControlMessage* message, Effects* effects) {
  if (auto* reply = std::get_if<DeclareReply>(message))
    return state_.placement.OnDeclareReply(std::move(*reply), effects);
  if (std::holds_alternative<PauseRounds>(*message)) {
    state_.placement.OnPauseRounds(effects);
  } else if (auto* retune = std::get_if<Retune>(message)) {
    return state_.placement.OnRetune(std::move(*retune), effects);
  } else if (const auto* server = std::get_if<ServerLost>(message)) {
    state_.lost_servers.OnServerLost(*server, effects);
    heard_.NotifyAll();
  } else if (const auto* back = std::get_if<ServerRejoined>(message)) {
    return state_.lost_servers.OnServerRejoined(*back, effects);
  } else if (const auto* all_have = std::get_if<ResultProgress>(message)) {
    state_.kept_results.OnResultProgress(*all_have, effects);
  } else if (const auto* moved = std::get_if<PartsMoved>(message)) {
    return state_.moved_parts.OnPartsMoved(*moved, effects);
  } else if (std::holds_alternative<Goodbye>(*message)) {
    left_ = true;
    heard_.NotifyAll();
  } else if (auto* joined = std::get_if<Joined>(message)) {
    all_joined_ = std::move(*joined);
    join_ended_.NotifyAll();
  } else if (const auto* query = std::get_if<StallQuery>(message)) {
    state_.watch.OnStallQuery(*query, effects);
  }
  return OkStatus();
}

Status Worker::BeginJoin() {
  BYTEPS_RETURN_IF_ERROR(CheckNotForked());
  Transaction transaction(this);
  BYTEPS_RETURN_IF_ERROR(state_.lifecycle.Refusal());
  if (has_joined_) return FailedPrecondition("join has been called already, and has not ended");
  if (job_.gpus_share_hosts) {
    return FailedPrecondition(
        "the GPUs of a host contribute together, so that one of them cannot join alone: train with "
        "BytePSStrategy, which goes on with the rest of the data");
  }
  const std::vector<std::shared_ptr<Exchange>> live = state_.keys.OldestExchanges();
  if (!live.empty()) {
    return FailedPrecondition(live[0]->Name() +
                              " is in flight: wait for all results before calling join");
  }
  has_joined_ = true;
  all_joined_.reset();
  if (local_)
    all_joined_ = Joined{{rank_}, rank_, "", {}, {}};
  else
    transaction.effects()->messages.push_back(state_.exchanges.Join());
  return OkStatus();
}

Status Worker::WaitForJoin(double seconds, std::optional<int32_t>* last) {
  MutexLock lock(mutex_);
  const int64_t end_ns = MonotonicNanos() + SecondsToNanos(seconds);
  while (!all_joined_.has_value() && state_.lifecycle.is_running()) {
    const int64_t left_ns = end_ns - MonotonicNanos();
    if (left_ns <= 0) return OkStatus();
    join_ended_.WaitFor(mutex_, std::min<int64_t>(left_ns, 100'000'000));
  }
  has_joined_ = false;
  BYTEPS_RETURN_IF_ERROR(state_.lifecycle.Refusal());
  if (!all_joined_->problem.empty()) return FailedPrecondition(all_joined_->problem);
  *last = all_joined_->last;
  return OkStatus();
}

void Worker::OnRelay(const Relay& relay) {
  std::shared_ptr<WorkerListener> listener;
  {
    MutexLock lock(mutex_);
    listener = listener_;
    if (listener == nullptr) relayed_.push_back(relay);
  }
  if (listener != nullptr) listener->OnRelay(relay.from, relay.bytes);
}

void Worker::OnStallNotice(const StallNotice& notice) {
  std::string text;
  {
    MutexLock lock(mutex_);
    text = state_.watch.OnStallNotice(notice, Now());
  }
  if (text.empty()) return;
  LogWarning(text, {"stalled", {}});
  MutexLock lock(mutex_);
  state_.watch.NoteLogged(Now());
}

void Worker::Fail(const Status& reason, const std::optional<LostPeer>& lost) {
  std::shared_ptr<WorkerListener> listener;
  {
    Transaction transaction(this);
    if (!state_.Fail(reason, lost, transaction.effects())) return;
    LogError(reason.message(), {"job_failed", {}});
    listener = listener_;
  }
  if (listener != nullptr) listener->OnFailure(reason);
}

}  // namespace byteps

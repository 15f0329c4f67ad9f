#include "cc/coordinator/state/messages.h"

#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "cc/coordinator/state/connections.h"
#include "cc/coordinator/state/senders.h"

namespace byteps {
namespace {

// Messages that wait for a worker which is not there yet: each sends few.
constexpr size_t kMostRelayed = 4096;

}  // namespace

Status PeerMessages::OnMessage(JobPeer* from, ControlMessage message, CoordinatorEffects* effects) {
  from->last_seen_ns = effects->now_ns;
  Status status = std::visit(
      [&](auto& each) {
        constexpr MessageRule kRule = kMessageRule<std::decay_t<decltype(each)>>;
        if (!MaySend(from->role, kRule.senders))
          return InvalidArgument(std::string("may not ") + kRule.what);
        if constexpr (kRule.senders == Senders::kNobody)
          return OkStatus();
        else
          return On(each, from, effects);
      },
      message);
  if (status.ok()) return status;
  return Status(status.code(), from->name + " " + status.message());
}

Status PeerMessages::On(const Heartbeat&, JobPeer*, Effects*) { return OkStatus(); }

Status PeerMessages::On(const Reachable& at, JobPeer* from, Effects*) {
  if (from->role == Role::kWorker) PeerConnections::SetListensAt(from, {at.host, at.port});
  return OkStatus();
}

Status PeerMessages::On(const DeclareRequest& request, JobPeer* from, Effects* effects) {
  return declarations_.On(request, from, effects);
}

Status PeerMessages::On(const TableAck& ack, JobPeer* from, Effects* effects) {
  if (ack.update_id >= updates_.next_id()) {
    return InvalidArgument("acknowledged update " + std::to_string(ack.update_id) + " of " +
                           std::to_string(updates_.next_id() - 1));
  }
  if (!updates_.Acknowledge(from->rank, ack.update_id)) return OkStatus();
  if (reassignment_.EndIfReady(effects)) losses_.ReadmitIfReady(effects);
  joins_.EndIfReady(effects);
  declarations_.AnswerIfReady(effects);
  retuning_.SendIfReady(effects);
  return OkStatus();
}

Status PeerMessages::On(const Goodbye&, JobPeer* from, Effects* effects) {
  departures_.Leave(from, effects);
  return OkStatus();
}

Status PeerMessages::On(const PeerLost& lost, JobPeer* from, Effects* effects) {
  JobPeer* const peer = peers_.Find(lost.role, lost.rank);
  const bool is_itself = peer == from;
  if (peer == nullptr || (lost.role != Role::kServer && !is_itself)) {
    return InvalidArgument("reported the loss of " + std::string(RoleName(lost.role)) + " " +
                           std::to_string(lost.rank) + ", to which it has no connection");
  }
  // A report may speak of the process before the one that is there now.
  const bool is_known = peer->state == JobPeer::State::kLost ||
                        peer->state == JobPeer::State::kLeft || peer->is_unannounced();
  if (is_known || peers_.all_workers_departed()) return OkStatus();
  const std::string what = is_itself ? from->name + " cannot go on: " + lost.description
                                     : lost.description + " (says " + from->name + ")";
  departures_.Lose(peer, what, effects);
  return OkStatus();
}

Status PeerMessages::On(const LinkReport& report, JobPeer* from, Effects* effects) {
  retuning_.On(report, *from, effects);
  return OkStatus();
}

Status PeerMessages::On(const RoundProgress& progress, JobPeer* from, Effects* effects) {
  retuning_.On(progress, *from, effects);
  return OkStatus();
}

Status PeerMessages::On(const PartProgress& progress, JobPeer* from, Effects* effects) {
  reassignment_.On(progress, *from, effects);
  return OkStatus();
}

Status PeerMessages::On(const ResultProgress& progress, JobPeer* from, Effects* effects) {
  reassignment_.On(progress, *from, effects);
  return OkStatus();
}

Status PeerMessages::On(const Joined& joined, JobPeer* from, Effects* effects) {
  return joins_.On(joined, *from, effects);
}

Status PeerMessages::On(Relay& relay, JobPeer* from, Effects* effects) {
  if (relay.from != from->rank)
    return InvalidArgument("wrote as worker " + std::to_string(relay.from));
  JobPeer* const to = peers_.Find(Role::kWorker, relay.to);
  if (to == nullptr) {
    return InvalidArgument("wrote to worker " + std::to_string(relay.to) + " of " +
                           std::to_string(job_.num_workers()));
  }
  if (!to->is_awaited()) {
    peers_.Send(*to, std::move(relay), effects);
  } else if (to->relayed.size() < kMostRelayed) {
    to->relayed.push_back(std::move(relay));
  } else {
    return ResourceExhausted("wrote more than " + std::to_string(kMostRelayed) +
                             " messages to worker " + std::to_string(relay.to) +
                             ", which has not connected yet");
  }
  return OkStatus();
}

Status PeerMessages::On(const StallQuery& query, JobPeer* from, Effects* effects) {
  return stalls_.On(query, *from, effects);
}

Status PeerMessages::On(const StallAnswer& answer, JobPeer* from, Effects*) {
  return stalls_.On(answer, *from);
}

}  // namespace byteps

// What each message does at the coordinator; senders.h says who may send it. A handler returns why
// a message cannot be: then its connection ends.

#include <string>
#include <type_traits>
#include <utility>
#include <variant>

#include "cc/base/clock.h"
#include "cc/coordinator/coordinator.h"
#include "cc/coordinator/coordinator_outbox.h"
#include "cc/coordinator/state/senders.h"

namespace byteps {
namespace {

// Messages that wait for a worker which is not there yet: each sends few.
constexpr size_t kMostRelayed = 4096;

}  // namespace

Status Coordinator::OnMessage(Connection& connection, ControlMessage message) {
  MutexLock lock(mutex_);
  Outbox outbox;
  Peer* const peer = FindPeer(connection.peer());
  peer->last_seen_ns = MonotonicNanos();
  Status status = std::visit(
      [&](auto& each) BYTEPS_REQUIRES(mutex_) {
        constexpr MessageRule kRule = kMessageRule<std::decay_t<decltype(each)>>;
        if (!MaySend(peer->role, kRule.senders))
          return InvalidArgument(std::string("may not ") + kRule.what);
        if constexpr (kRule.senders == Senders::kNobody)
          return OkStatus();
        else
          return On(each, peer, &outbox);
      },
      message);
  if (status.ok()) return status;
  return Status(status.code(), connection.peer_name() + " " + status.message());
}

Status Coordinator::On(const Heartbeat&, Peer*, Outbox*) { return OkStatus(); }

Status Coordinator::On(const Reachable& at, Peer* from, Outbox*) {
  if (from->role == Role::kWorker) SetListensAt(from, {at.host, at.port});
  return OkStatus();
}

Status Coordinator::On(const DeclareRequest& request, Peer* from, Outbox* outbox) {
  if (from->is_declaring) return InvalidArgument("declared without waiting for the answer");
  Declare(request, *from, outbox);
  return OkStatus();
}

Status Coordinator::On(const TableAck& ack, Peer* from, Outbox* outbox) {
  if (ack.update_id >= next_update_id_) {
    return InvalidArgument("acknowledged update " + std::to_string(ack.update_id) + " of " +
                           std::to_string(next_update_id_ - 1));
  }
  const uint64_t before = AckedByAll();
  acked_updates_->Advance(from->rank, ack.update_id);
  if (AckedByAll() > before) OnServersAck(outbox);
  return OkStatus();
}

Status Coordinator::On(const Goodbye&, Peer* from, Outbox* outbox) {
  Leave(from, outbox);
  return OkStatus();
}

Status Coordinator::On(const PeerLost& lost, Peer* from, Outbox* outbox) {
  Peer* const peer = FindPeer(lost.role, lost.rank);
  if (lost.role != Role::kServer || peer == nullptr) {
    return InvalidArgument("reported the loss of " + std::string(RoleName(lost.role)) + " " +
                           std::to_string(lost.rank) + ", to which it has no connection");
  }
  // A report may speak of the process before the one that is there now.
  const bool is_known =
      peer->presence == Presence::kLost || peer->presence == Presence::kLeft || peer->is_returning;
  if (!is_known && !AllWorkersGone())
    Lose(peer, lost.description + " (says " + from->name + ")", outbox);
  return OkStatus();
}

Status Coordinator::On(const LinkReport& report, Peer* from, Outbox* outbox) {
  if (const auto sizes = tuning_->OnReport(from->rank, report)) Tune(*sizes, outbox);
  return OkStatus();
}

Status Coordinator::On(const RoundsHeld& held, Peer* from, Outbox* outbox) {
  tuning_->OnHeld(from->rank, held);
  RetuneIfReady(outbox);
  return OkStatus();
}

Status Coordinator::On(const PartsHeld& held, Peer* from, Outbox* outbox) {
  failover_->OnHeld(from->rank, held);
  MovePartsIfReady(outbox);
  return OkStatus();
}

Status Coordinator::On(const ResultsHeld& held, Peer* from, Outbox* outbox) {
  const ResultsHeld all_have{failover_->OnResults(from->rank, held)};
  if (!all_have.tensors.empty()) ToAll(all_have, outbox);
  return OkStatus();
}

Status Coordinator::On(Relay& relay, Peer* from, Outbox* outbox) {
  if (relay.from != from->rank)
    return InvalidArgument("wrote as worker " + std::to_string(relay.from));
  Peer* const to = FindPeer(Role::kWorker, relay.to);
  if (to == nullptr) {
    return InvalidArgument("wrote to worker " + std::to_string(relay.to) + " of " +
                           std::to_string(job_->num_workers()));
  }
  if (to->presence != Presence::kExpected) {
    outbox->Add(*to, std::move(relay));
  } else if (to->relayed.size() < kMostRelayed) {
    to->relayed.push_back(std::move(relay));
  } else {
    return ResourceExhausted("wrote more than " + std::to_string(kMostRelayed) +
                             " messages to worker " + std::to_string(relay.to) +
                             ", which has not connected yet");
  }
  return OkStatus();
}

Status Coordinator::On(const StallQuery& query, Peer* from, Outbox*) {
  if (query.from != from->rank)
    return InvalidArgument("asked about a stall as worker " + std::to_string(query.from));
  if (stall_digest_ == nullptr) {
    stall_digest_ =
        std::make_unique<StallDigest>(job_->num_workers(), next_stall_id_++, MonotonicNanos());
    BeginSoon();
  }
  stall_digest_->AddQuery(query);
  return OkStatus();
}

Status Coordinator::On(const StallAnswer& answer, Peer* from, Outbox*) {
  if (answer.from != from->rank)
    return InvalidArgument("answered for a stall as worker " + std::to_string(answer.from));
  if (stall_digest_ != nullptr) stall_digest_->AddAnswer(answer);
  return OkStatus();
}

}  // namespace byteps

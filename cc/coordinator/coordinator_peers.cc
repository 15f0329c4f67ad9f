// The part of Coordinator for who takes part, and for what all of them are told.
#include <limits>

#include "cc/coordinator/control_session.h"
#include "cc/coordinator/coordinator.h"
#include "cc/coordinator/coordinator_outbox.h"
#include "cc/wire/control_frame.h"

namespace byteps {

Coordinator::Peer* Coordinator::FindPeer(Role role, int32_t rank) {
  if (!job_.has_value() || rank < 0) return nullptr;
  if (role == Role::kWorker) return rank < job_->num_workers() ? &peers_[rank] : nullptr;
  if (role != Role::kServer || rank >= job_->num_servers()) return nullptr;
  return &peers_[job_->num_workers() + rank];
}

void Coordinator::SetPresence(Peer* peer, Presence presence) {
  const auto is_here = [](Presence p) {
    return p == Presence::kExpected || p == Presence::kConnected;
  };
  if (peer->role == Role::kWorker) {
    workers_here_ += is_here(presence) - is_here(peer->presence);
    workers_left_ += (presence == Presence::kLeft) - (peer->presence == Presence::kLeft);
  }
  const bool is_newly_lost = presence == Presence::kLost && peer->presence != Presence::kLost;
  if (is_newly_lost && peer->session->connection() != nullptr) --connected_;
  if (is_newly_lost && peer->role == Role::kServer)
    acked_updates_->Set(peer->rank, std::numeric_limits<uint64_t>::max());
  peer->presence = presence;
}

void Coordinator::ToAll(const ControlMessage& message, Outbox* outbox) {
  const OutgoingFrame frame = ControlFrame(message);
  for (const Peer& peer : peers_) outbox->Add(peer, frame);
}

void Coordinator::ToRole(Role role, const ControlMessage& message, Outbox* outbox) {
  const OutgoingFrame frame = ControlFrame(message);
  for (const Peer& peer : peers_) {
    if (peer.role == role) outbox->Add(peer, frame);
  }
}

}  // namespace byteps

#include "cc/coordinator/state/peer_table.h"

#include <algorithm>

#include "cc/wire/control_frame.h"

namespace byteps {

PeerTable::PeerTable(const JobDescription& job, TableUpdates* updates, int64_t now_ns)
    : num_workers_(job.num_workers()),
      num_servers_(job.num_servers()),
      updates_(updates),
      peers_(job.num_workers() + job.num_servers()),
      workers_here_(job.num_workers()) {
  for (size_t i = 0; i < peers_.size(); ++i) {
    const auto index = static_cast<int32_t>(i);
    peers_[i].role = index < num_workers_ ? Role::kWorker : Role::kServer;
    peers_[i].rank = index < num_workers_ ? index : index - num_workers_;
    peers_[i].last_seen_ns = now_ns;
  }
}

JobPeer* PeerTable::Find(Role role, int32_t rank) {
  if (rank < 0) return nullptr;
  if (role == Role::kWorker) return rank < num_workers_ ? &peers_[rank] : nullptr;
  if (role != Role::kServer || rank >= num_servers_) return nullptr;
  return &peers_[num_workers_ + rank];
}

void PeerTable::SetState(JobPeer* peer, JobPeer::State state) {
  if (peer->role == Role::kWorker) {
    const bool was_here = peer->is_awaited() || peer->is_connected();
    const bool has_left = state == JobPeer::State::kLeft;
    if (was_here && (has_left || state == JobPeer::State::kLost)) --workers_here_;
    workers_left_ += has_left - (peer->state == JobPeer::State::kLeft);
  }
  peer->state = state;
}

bool PeerTable::Follow(JobPeer* peer, std::string_view event) {
  for (const Transition<JobPeer::State>& row : JobPeer::kTransitions) {
    if (row.from != peer->state || row.event != event) continue;
    SetState(peer, row.to);
    return true;
  }
  return false;
}

bool PeerTable::Connect(JobPeer* peer) {
  if (!peer->has_connection) ++connected_;
  peer->has_connection = true;
  return Follow(peer, "connects");
}

void PeerTable::Disconnect(JobPeer* peer) {
  peer->has_connection = false;
  if (peer->state != JobPeer::State::kLost) --connected_;
}

bool PeerTable::Leave(JobPeer* peer) {
  const bool was_lost = peer->state == JobPeer::State::kLost;
  if (!Follow(peer, "Goodbye")) return false;
  if (was_lost && peer->has_connection) ++connected_;
  return true;
}

void PeerTable::Lose(JobPeer* peer) {
  if (!Follow(peer, "lost")) return;
  if (peer->has_connection) --connected_;
  if (peer->role == Role::kServer) updates_->Lose(peer->rank);
}

void PeerTable::Readmit(JobPeer* server, int64_t now_ns) {
  if (!Follow(server, "Readmit")) return;
  JobPeer fresh;
  fresh.role = server->role;
  fresh.rank = server->rank;
  fresh.state = server->state;
  fresh.last_seen_ns = now_ns;
  *server = std::move(fresh);
}

void PeerTable::Announce(JobPeer* server) { Follow(server, "ServerRejoined"); }

void PeerTable::ExcuseSilence(int64_t stopped_ns, int64_t now_ns) {
  for (JobPeer& peer : peers_) peer.last_seen_ns = std::min(now_ns, peer.last_seen_ns + stopped_ns);
}

void PeerTable::NoteHeard(size_t index, int64_t heard_ns) {
  peers_[index].last_seen_ns = std::max(peers_[index].last_seen_ns, heard_ns);
}

void PeerTable::Send(const JobPeer& to, const OutgoingFrame& frame, CoordinatorEffects* effects,
                     bool is_heartbeat) const {
  if (!to.is_awaited()) effects->frames.push_back({IndexOf(to), frame, is_heartbeat});
}

void PeerTable::Send(const JobPeer& to, const ControlMessage& message,
                     CoordinatorEffects* effects) const {
  if (!to.is_awaited()) Send(to, ControlFrame(message), effects);
}

void PeerTable::SendToAll(const ControlMessage& message, CoordinatorEffects* effects) const {
  const OutgoingFrame frame = ControlFrame(message);
  for (const JobPeer& peer : peers_) Send(peer, frame, effects);
}

void PeerTable::SendToRole(Role role, const ControlMessage& message,
                           CoordinatorEffects* effects) const {
  const OutgoingFrame frame = ControlFrame(message);
  for (const JobPeer& peer : peers_) {
    if (peer.role == role) Send(peer, frame, effects);
  }
}

}  // namespace byteps

#include "cc/coordinator/state/reassignment.h"

#include <utility>

namespace byteps {

using Notice = CoordinatorEffects::Notice;

// A server in a worker's process is lost with its worker.
bool Reassignment::CanLose(const JobPeer& server) {
  if (server.is_unannounced()) return true;  // it owns nothing
  if (!job_.options.server_failover || server.state != JobPeer::State::kConnected ||
      job_.HostOfServer(server.rank) >= 0 || !phase_.failure().empty() ||
      !table_.CanLose(server.rank))
    return false;
  bool is_last = true;
  for (const JobPeer& peer : peers_) {
    if (peer.state == JobPeer::State::kExpected) return false;  // still at its start
    const bool is_another = peer.role == Role::kServer && &peer != &server;
    if (is_another && peer.state == JobPeer::State::kConnected) is_last = false;
  }
  return !is_last;
}

void Reassignment::Lose(JobPeer* server, const std::string& what, CoordinatorEffects* effects) {
  const bool owned_parts = !server->is_unannounced();
  effects->notices.push_back(
      {Notice::Level::kWarning,
       what + "; training goes on with" + (owned_parts ? " the other servers" : "out it"),
       "process_lost",
       RankOf(*server),
       {}});
  // One that was only stopped learns that nobody needs it any more.
  peers_.Send(*server, PeerLost{server->role, server->rank, what}, effects);
  effects->forgotten.push_back(peers_.IndexOf(*server));
  effects->wakes_waiter = true;
  peers_.Lose(server);
  if (!owned_parts) return;  // and nobody was told of it
  table_.Lose(server->rank);
  moved_.reset();
  const uint32_t version = failover_.Begin();
  peers_.SendToRole(Role::kWorker, ServerLost{version, server->rank}, effects);
  MoveIfReady(effects);
}

void Reassignment::On(const PartProgress& progress, const JobPeer& from,
                      CoordinatorEffects* effects) {
  failover_.OnPartProgress(from.rank, progress);
  MoveIfReady(effects);
}

void Reassignment::On(const ResultProgress& progress, const JobPeer& from,
                      CoordinatorEffects* effects) {
  const ResultProgress all_have{failover_.OnResults(
      from.rank, progress, [this](uint64_t key) { return table_.NumMembers(key); })};
  if (!all_have.tensors.empty()) peers_.SendToAll(all_have, effects);
}

void Reassignment::OnDeparted(const JobPeer& worker, CoordinatorEffects* effects) {
  failover_.OnDeparted(worker.rank);
  MoveIfReady(effects);
}

// The workers have said where they are: finds new owners, and tells the servers first.
void Reassignment::MoveIfReady(CoordinatorEffects* effects) {
  if (!failover_.all_paused()) return;
  PartsMoved moved;
  moved.update_id = updates_.TakeId();
  moved.version = failover_.version();
  moved.entries = table_.MoveParts(moved.version);
  declarations_.DropEncodedReply();
  moved.parts = failover_.Agree(moved.entries);
  peers_.SendToRole(Role::kServer, moved, effects);
  moved_ = std::move(moved);
  failover_.Move();
}

void Reassignment::EndIfReady(CoordinatorEffects* effects) {
  if (!moved_.has_value() || updates_.acknowledged_by_all() < moved_->update_id) return;
  peers_.SendToRole(Role::kWorker, *moved_, effects);
  moved_.reset();
  table_.Settle();
  failover_.End();
  ReadmitIfReady(effects);
}

std::vector<int32_t> Reassignment::LostServers() {
  std::vector<int32_t> lost;
  if (!MayReadmit()) return lost;
  for (const JobPeer& peer : peers_) {
    if (peer.role == Role::kServer && peer.state == JobPeer::State::kLost)
      lost.push_back(peer.rank);
  }
  return lost;
}

Status Reassignment::Readmit(int32_t rank, const Endpoint& endpoint, const std::string& host,
                             int64_t now_ns) {
  JobPeer* const server = peers_.Find(Role::kServer, rank);
  if (server == nullptr || server->state != JobPeer::State::kLost || !MayReadmit())
    return FailedPrecondition("server " + std::to_string(rank) + " is not lost, or the job ends");
  peers_.Readmit(server, now_ns);
  job_.server_endpoints[rank] = endpoint;
  job_.server_hosts[rank] = host;
  return OkStatus();
}

void Reassignment::Greet(const JobPeer& server, CoordinatorEffects* effects) {
  if (retuning_.unsent_bytes() > 0) {
    Retune retune;
    retune.unsent_bytes = retuning_.unsent_bytes();
    peers_.Send(server, std::move(retune), effects);
  }
  joins_.Greet(server, effects);
  Goodbye goodbye;
  for (const JobPeer& peer : peers_) {
    if (peer.role == Role::kWorker && peer.state == JobPeer::State::kLeft)
      goodbye.ranks.push_back(peer.rank);
  }
  if (!goodbye.ranks.empty()) peers_.Send(server, goodbye, effects);
  if (peers_.all_workers_departed()) peers_.Send(server, JobEnded{}, effects);
}

void Reassignment::ReadmitIfReady(CoordinatorEffects* effects) {
  if (failover_.is_running() || !MayReadmit()) return;
  for (JobPeer& server : peers_) {
    if (server.state != JobPeer::State::kRejoining) continue;
    peers_.Announce(&server);
    updates_.Readmit(server.rank);
    table_.Return(server.rank, job_.server_hosts[server.rank]);
    ServerRejoined back;
    back.version = failover_.Begin();
    back.server = server.rank;
    back.host_id = job_.server_hosts[server.rank];
    back.host = job_.server_endpoints[server.rank].host;
    back.port = job_.server_endpoints[server.rank].port;
    declarations_.DropEncodedReply();
    for (const TableEntry& entry : table_.MoveParts(back.version, /*evens_out=*/true)) {
      for (uint32_t part = 0; part < entry.parts.size(); ++part) {
        if (entry.parts[part].version == back.version)
          back.parts.push_back({entry.key, entry.variant, part});
      }
    }
    effects->notices.push_back(
        {Notice::Level::kWarning,
         server.name + " has been started again and gets a share of the parts",
         "process_back",
         RankOf(server),
         {}});
    peers_.SendToRole(Role::kWorker, back, effects);
    return MoveIfReady(effects);  // others wait for the end of this
  }
}

}  // namespace byteps

#include "cc/coordinator/state/server_losses.h"

#include <utility>

namespace byteps {

using Notice = CoordinatorEffects::Notice;

// A server in a worker's process is lost with its worker.
bool ServerLosses::CanLose(const JobPeer& server) {
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

void ServerLosses::Lose(JobPeer* server, const std::string& what, CoordinatorEffects* effects) {
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
  peers_.SendToRole(Role::kWorker, ServerLost{reassignment_.Begin(), server->rank}, effects);
  reassignment_.MoveIfReady(effects);
}

std::vector<int32_t> ServerLosses::LostServers() {
  std::vector<int32_t> lost;
  if (!MayReadmit()) return lost;
  for (const JobPeer& peer : peers_) {
    if (peer.role == Role::kServer && peer.state == JobPeer::State::kLost)
      lost.push_back(peer.rank);
  }
  return lost;
}

Status ServerLosses::Readmit(int32_t rank, const Endpoint& endpoint, const std::string& host,
                             int64_t now_ns) {
  JobPeer* const server = peers_.Find(Role::kServer, rank);
  if (server == nullptr || server->state != JobPeer::State::kLost || !MayReadmit())
    return FailedPrecondition("server " + std::to_string(rank) + " is not lost, or the job ends");
  peers_.Readmit(server, now_ns);
  job_.server_endpoints[rank] = endpoint;
  job_.server_hosts[rank] = host;
  return OkStatus();
}

void ServerLosses::Greet(const JobPeer& server, CoordinatorEffects* effects) {
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

void ServerLosses::ReadmitIfReady(CoordinatorEffects* effects) {
  if (reassignment_.is_running() || !MayReadmit()) return;
  for (JobPeer& server : peers_) {
    if (server.state != JobPeer::State::kRejoining) continue;
    peers_.Announce(&server);
    updates_.Readmit(server.rank);
    table_.Return(server.rank, job_.server_hosts[server.rank]);
    ServerRejoined back;
    back.version = reassignment_.Begin();
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
    return reassignment_.MoveIfReady(effects);  // others wait for the end of this
  }
}

}  // namespace byteps

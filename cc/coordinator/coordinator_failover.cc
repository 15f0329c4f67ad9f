// The part of Coordinator for servers that are lost while others remain
// (coordinator/state/failover.h):
//
//   ServerLost -> workers -> PartsHeld -> PartsMoved -> servers -> TableAck -> PartsMoved ->
//   workers
//
// Between the first and the last of these nobody is told where tensors are. Another server that is
// lost meanwhile has it begin anew.
//
// A server that is started again gets parts of the others in the same way. The parts that are to
// move are named first, and are to the workers as those of a lost server from then on:
//
//   TakeBack -> it connects -> ServerBack -> workers -> PartsHeld -> ... as above
//
// It waits for the end of what goes on because of others. If it is lost meanwhile, its parts are
// those of a lost server.
#include <algorithm>
#include <memory>
#include <utility>

#include "cc/base/clock.h"
#include "cc/base/logging.h"
#include "cc/coordinator/coordinator.h"
#include "cc/coordinator/coordinator_outbox.h"

namespace byteps {

// A server in a worker's process is lost with its worker.
bool Coordinator::CanGoOnWithout(const Peer& server) const {
  if (!job_->options.server_failover || server.presence != Presence::kConnected ||
      job_->HostOfServer(server.rank) >= 0 || !failure_.empty() || !table_->CanLose(server.rank))
    return false;
  bool is_last = true;
  for (const Peer& peer : peers_) {
    if (peer.is_returning) continue;
    if (peer.presence == Presence::kExpected) return false;  // still at its start
    const bool is_another = peer.role == Role::kServer && &peer != &server;
    if (is_another && peer.presence == Presence::kConnected) is_last = false;
  }
  return !is_last;
}

void Coordinator::GoOnWithout(Peer* server, const std::string& what, Outbox* outbox) {
  SetPresence(server, Presence::kLost);
  table_->Lose(server->rank);
  moved_.reset();
  const uint32_t version = failover_->Begin();
  LogWarning(what + "; training goes on with the other servers",
             {"process_lost", FieldsOf(*server)});
  // One that was only stopped learns that nobody needs it any more.
  outbox->Add(*server, PeerLost{server->role, server->rank, what});
  server->session->Forget();
  ToRole(Role::kWorker, ServerLost{version, server->rank}, outbox);
  MovePartsIfReady(outbox);
  changed_.NotifyAll();
}

// The workers have said where they are: finds new owners, and tells the servers first.
void Coordinator::MovePartsIfReady(Outbox* outbox) {
  if (!failover_->all_hold() || moved_.has_value()) return;
  PartsMoved moved;
  moved.update_id = next_update_id_++;
  moved.version = failover_->version();
  moved.entries = table_->MoveParts(moved.version);
  encoded_reply_ = {};
  moved.parts = failover_->Agree(moved.entries);
  ToRole(Role::kServer, moved, outbox);
  moved_ = std::move(moved);
}

void Coordinator::EndFailoverIfReady(Outbox* outbox) {
  if (!moved_.has_value() || AckedByAll() < moved_->update_id) return;
  ToRole(Role::kWorker, *moved_, outbox);
  moved_.reset();
  table_->Settle();
  failover_->End();
  WelcomeBackIfReady(outbox);
}

std::vector<int32_t> Coordinator::lost_servers() const {
  MutexLock lock(mutex_);
  std::vector<int32_t> lost;
  if (stopping_ || !failure_.empty() || AnyWorkerHasLeft()) return lost;
  for (const Peer& peer : peers_) {
    if (peer.role == Role::kServer && peer.presence == Presence::kLost) lost.push_back(peer.rank);
  }
  return lost;
}

Status Coordinator::TakeBack(int32_t rank, const Endpoint& endpoint, const std::string& host) {
  MutexLock lock(mutex_);
  Peer* const server = FindPeer(Role::kServer, rank);
  if (server == nullptr || server->presence != Presence::kLost || !failure_.empty() || stopping_ ||
      AnyWorkerHasLeft())
    return FailedPrecondition("server " + std::to_string(rank) + " is not lost, or the job ends");
  // The process before may only have been stopped. It has been told to end, and what comes from it
  // is not of this session.
  *server = Peer();
  server->role = Role::kServer;
  server->rank = rank;
  server->is_returning = true;
  server->last_seen_ns = MonotonicNanos();
  job_->server_endpoints[rank] = endpoint;
  job_->server_hosts[rank] = host;
  return OkStatus();
}

// It owned nothing, and nobody was told of it.
void Coordinator::LoseReturning(Peer* server, const std::string& what, Outbox* outbox) {
  LogWarning(what + "; training goes on without it", {"process_lost", FieldsOf(*server)});
  outbox->Add(*server, PeerLost{server->role, server->rank, what});
  server->session->Forget();
  SetPresence(server, Presence::kLost);
  server->is_returning = false;
  changed_.NotifyAll();
}

// What has been said before it came. It learns of tensors when it gets parts of them.
void Coordinator::Greet(const Peer& server, Outbox* outbox) {
  if (unsent_bytes_ > 0) {
    Retune retune;
    retune.unsent_bytes = unsent_bytes_;
    outbox->Add(server, std::move(retune));
  }
  Goodbye goodbye;
  for (const Peer& peer : peers_) {
    if (peer.role == Role::kWorker && peer.presence == Presence::kLeft)
      goodbye.ranks.push_back(peer.rank);
  }
  if (!goodbye.ranks.empty()) outbox->Add(server, goodbye);
  if (AllWorkersGone()) outbox->Add(server, JobEnded{});
}

// Names the parts that are to move to those servers that have come again.
void Coordinator::WelcomeBackIfReady(Outbox* outbox) {
  if (!job_.has_value() || failover_->is_running() || !failure_.empty() || AnyWorkerHasLeft())
    return;
  for (Peer& server : peers_) {
    if (!server.is_returning || server.presence != Presence::kConnected) continue;
    server.is_returning = false;
    acked_updates_->Set(server.rank, next_update_id_ - 1);  // it has no part of these tensors
    table_->Return(server.rank, job_->server_hosts[server.rank]);
    ServerBack back;
    back.version = failover_->Begin();
    back.server = server.rank;
    back.host_id = job_->server_hosts[server.rank];
    back.host = job_->server_endpoints[server.rank].host;
    back.port = job_->server_endpoints[server.rank].port;
    encoded_reply_ = {};
    for (const TableEntry& entry : table_->MoveParts(back.version, /*evens_out=*/true)) {
      for (uint32_t part = 0; part < entry.parts.size(); ++part) {
        if (entry.parts[part].version == back.version)
          back.parts.push_back({entry.key, entry.variant, part});
      }
    }
    LogWarning(server.name + " has been started again and gets a share of the parts",
               {"process_back", FieldsOf(server)});
    ToRole(Role::kWorker, back, outbox);
    return MovePartsIfReady(outbox);  // others wait for the end of this
  }
}

}  // namespace byteps

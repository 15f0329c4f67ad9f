// The part of Coordinator for servers that are lost while others remain (coordinator/failover.h):
//
//   ServerLost -> workers -> PartsHeld -> PartsMoved -> servers -> TableAck -> PartsMoved ->
//   workers
//
// Between the first and the last of these nobody is told where tensors are. Another server that is
// lost meanwhile has it begin anew.
#include <utility>

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
    if (peer.presence == Presence::kExpected) return false;  // still at its start
    const bool is_another = peer.role == Role::kServer && &peer != &server;
    if (is_another && peer.presence == Presence::kConnected) is_last = false;
  }
  return !is_last;
}

void Coordinator::GoOnWithout(Peer* server, const std::string& what, Outbox* outbox) {
  server->presence = Presence::kLost;
  table_->Lose(server->rank);
  moved_.reset();
  const uint32_t version = failover_->Begin();
  LogWarning(what + "; training goes on with the other servers");
  // One that was only stopped learns that nobody needs it any more.
  outbox->Add(*server, PeerLost{server->role, server->rank, what});
  server->session->Forget();
  ToRole(Role::kWorker, ServerLost{version, server->rank}, outbox);
  MovePartsIfReady(outbox);
  changed_.notify_all();
}

// The workers have said where they are: finds new owners, and tells the servers first.
void Coordinator::MovePartsIfReady(Outbox* outbox) {
  if (!failover_->all_hold() || moved_.has_value()) return;
  PartsMoved moved;
  moved.update_id = next_update_id_++;
  moved.version = failover_->version();
  moved.entries = table_->MoveParts(moved.version);
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
}

}  // namespace byteps

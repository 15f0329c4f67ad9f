// The part of Worker that has the connections to the servers: made, broken, and made again.
//
// A connection that breaks while both processes live comes again (van/reconnector.h). Then the
// worker asks what has become of the pushes that it made over it and has no answer to; the server
// says which of them go on, and from where, and sends answers again that were lost.
#include <memory>
#include <string>
#include <utility>

#include "cc/coordinator/control_session.h"
#include "cc/van/reconnector.h"
#include "cc/worker/worker.h"
#include "cc/worker/worker_actions.h"

namespace byteps {

void Worker::PreparePaths() {
  MutexLock lock(mutex_);
  servers_.Prepare(job_, [this](int32_t server, uint32_t path) {
    return std::make_unique<Reconnector>(
        [=](double seconds) { return Connect(server, path, seconds); },
        [=](const Status& reason, int life) { LoseServer(server, life, reason); },
        // It may be stopped, or this worker be cut off, for less than the heartbeat timeout.
        [=] { return !coordinator_->KnowsToLive(server); });
  });
}

Status Worker::ConnectToServers() {
  const auto paths = static_cast<uint32_t>(job_.PathsPerServer());
  for (int32_t server = 0; server < job_.num_servers(); ++server) {
    for (uint32_t path = 0; path < paths; ++path) {
      const Status status = Connect(server, path, job_.options.timeouts.connect_timeout);
      if (!status.ok() && !WasLost(server)) return status;
    }
  }
  return OkStatus();
}

Status Worker::Connect(int32_t server, uint32_t path, double seconds) {
  bool again = false;
  Endpoint endpoint;
  std::string host;
  {
    MutexLock lock(mutex_);
    ServerLink& link = servers_[server];
    if (link.paths[path].connection != nullptr) return OkStatus();
    again = link.paths[path].was_open;
    link.paths[path].attempt_life = link.lives;
    endpoint = link.endpoint;
    host = link.host;
  }
  Hello hello;
  hello.job_id = job_.job_id;
  hello.epoch = job_.epoch;
  hello.role = Role::kWorker;
  hello.rank = rank_;
  hello.path = path;
  hello.again = again;
  hello.same_host = job_.worker_hosts[rank_] == host;
  Hello peer;
  peer.role = Role::kServer;
  peer.rank = server;
  peer.path = path;
  peer.again = again;
  // The coordinator may come to know that the server is lost, and this worker may stop.
  const Patience patience(seconds, [=] { return CheckMayConnect(server); });
  std::shared_ptr<Connection> connection;  // OnOpen has kept it already
  Status status = van_->Connect(endpoint, hello, peer, this, patience, &connection);
  BYTEPS_RETURN_IF_ERROR(CheckMayConnect(server));
  const bool took_too_long =
      status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kDeadlineExceeded;
  if (again || !took_too_long) return status;
  return Status(status.code(), status.message() + "; tried for " +
                                   std::to_string(static_cast<int64_t>(seconds)) +
                                   " s (BYTEPS_CONNECT_TIMEOUT)");
}

Status Worker::CheckMayConnect(int32_t server) const {
  MutexLock lock(mutex_);
  BYTEPS_RETURN_IF_ERROR(Refusal());
  if (!servers_[server].is_lost) return OkStatus();
  return FailedPrecondition("server " + std::to_string(server) + " has been given up");
}

bool Worker::WasLost(int32_t server) const {
  MutexLock lock(mutex_);
  return servers_[server].was_lost;
}

void Worker::OnOpen(const std::shared_ptr<Connection>& connection) {
  Transaction transaction(this);
  Actions* const actions = transaction.actions();
  const Hello& peer = connection->peer();
  ServerLink& server = servers_[peer.rank];
  ServerPath& path = server.paths[peer.path];
  // The others: a connection to the process before, or one too many.
  if (server.is_lost || path.attempt_life != server.lives || peer.again != path.was_open ||
      path.connection != nullptr)
    return connection->Close(Unavailable("the scheduler has given the server up"));
  path.Open(connection);
  if (servers_.unsent_bytes() > 0) connection->LimitUnsent(servers_.unsent_bytes());
  if (peer.again) {
    ++path.reconnects;
    actions->frames.emplace_back(connection,
                                 ControlFrame(keys_.UnansweredOn(peer.rank, peer.path)));
  } else {
    const bool is_waited_for = !server.parked.empty();
    Use(&server, &path, actions);
    if (is_waited_for) Pump(actions);
  }
}

void Worker::Use(ServerLink* server, ServerPath* path, Actions* actions) {
  path->is_ready = true;
  for (const OutgoingFrame& frame : server->given_up)
    actions->frames.emplace_back(path->connection, frame);
  for (const OutgoingFrame& frame : server->results)
    actions->frames.emplace_back(path->connection, frame);
  for (PartTask& task : std::exchange(server->parked, {})) queue_.Push(std::move(task));
}

Status Worker::OnResumeAnswer(Connection& connection, const ResumeAnswer& answer,
                              Actions* actions) {
  ServerPath* const path = servers_.Find(connection);
  if (path == nullptr) return OkStatus();  // it has broken again
  if (path->is_ready) return Internal(connection.peer_name() + " answered what it was not asked");
  const int32_t server = connection.peer().rank;
  for (const ResumeAnswer::Push& push : answer.incomplete) {
    const Key* const key = keys_.FindPlaced(push.key);
    const std::shared_ptr<Exchange> live = key == nullptr ? nullptr : key->live;
    // An exchange may have ended with an error meanwhile.
    if (live == nullptr || live->round != push.round || live->entry == nullptr) continue;
    const bool is_known = push.part < live->places.size();
    // Or the part has left that server.
    if (is_known && (live->places[push.part].server != server || IsMoving(*live, push.part)))
      continue;
    const bool was_asked = push.part < live->part_done.size() && !live->part_done[push.part] &&
                           live->sent_on[push.part] == static_cast<int32_t>(connection.peer().path);
    const uint64_t bytes = was_asked ? live->PushBytes(push.part, rank_) : 0;
    if (!was_asked || (push.received_bytes > 0 && push.received_bytes >= bytes))
      return Internal(connection.peer_name() + " has another part than it was sent");
    ExpectNoAnswer(live.get(), push.part);
    ++counters_.retried_parts;
    live->has_moved = live->has_moved || live->PushCodec(push.part) != nullptr;
    queue_.Push({live, push.part, bytes - push.received_bytes, PriorityOf(*live, push.part),
                 push.received_bytes});
  }
  Use(&servers_[server], path, actions);
  Pump(actions);
  return OkStatus();
}

void Worker::OnClosed(Connection& connection, const Status& reason) {
  const Hello& peer = connection.peer();
  int life = 0;
  Reconnector* reconnector = nullptr;
  {
    Transaction transaction(this);
    Actions* const actions = transaction.actions();
    ServerPath* const path = servers_.Find(connection);
    if (path == nullptr || stopping_ || !failure_.ok()) return;
    life = servers_[peer.rank].lives;
    reconnector = path->reconnector.get();
    queue_.ReturnCredit(path->Break());
    Pump(actions);
    HoldPartsIfClosed(actions);
  }
  reconnector->OnClosed(Status(reason.code(), connection.peer_name() + job_.InProcessOf(peer.rank) +
                                                  " is lost: " + reason.message()),
                        life);
}

void Worker::LoseServer(int32_t server, int life, const Status& reason) {
  bool may_go_on = false;
  {
    MutexLock lock(mutex_);
    const ServerLink& link = servers_[server];
    if (stopping_ || !failure_.ok() || link.is_lost || link.lives != life) return;
    may_go_on = MayGoOnWithout(server);
    // Before a goodbye that may follow: the coordinator must not take this for a good end. And
    // before PartsHeld, without which the server cannot come again: this one is meant.
    coordinator_->Send(PeerLost{Role::kServer, server, reason.message()});
  }
  // Else it is the coordinator that says how this goes on.
  if (!may_go_on) Fail(Unavailable(reason.message()), LostPeer{Role::kServer, server});
}

}  // namespace byteps

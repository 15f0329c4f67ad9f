#include "cc/coordinator/coordinator.h"

#include <algorithm>
#include <utility>

#include "cc/base/clock.h"
#include "cc/coordinator/coordinator_transaction.h"

namespace byteps {

Coordinator::Coordinator(const EngineOptions& options, std::unique_ptr<Van> van)
    : options_(options),
      van_(std::move(van)),
      absent_([this](const Endpoint& endpoint,
                     double timeout) { return van_->IsRefusedAt(endpoint, timeout); },
              [this](size_t peer, const std::string& why) { OnJoinTimeout(peer, why); }) {
  if (van_ != nullptr) return;
  VanOptions van_options;
  van_options.io_threads = 1;  // so that all see the table's updates in one order
  van_options.ports = options.network.ports;
  van_options.secret = options.security.secret;
  van_options.tls = options.security.tls;
  van_ = NewTcpVan(van_options);
}

Coordinator::~Coordinator() { Stop(); }

Status Coordinator::Listen(const std::string& address, uint16_t port) {
  return van_->Listen(address, port, this, &endpoint_);
}

Status Coordinator::Start(const JobDescription& job) {
  BYTEPS_RETURN_IF_ERROR(van_->Expect(job.num_workers() + job.num_servers()));
  {
    MutexLock lock(mutex_);
    if (state_ != nullptr) return FailedPrecondition("the coordinator serves a job already");
    state_ = std::make_unique<CoordinatorState>(job, options_.timeouts, MonotonicNanos());
    for (int32_t i = 0; i < job.num_workers() + job.num_servers(); ++i)
      sessions_.push_back(std::make_shared<ControlSession>());
  }
  heartbeat_.Start("byteps-beat", options_.timeouts.heartbeat_interval,
                   [this](int64_t late_ns) { Beat(late_ns); });
  return OkStatus();
}

bool Coordinator::Wait(double timeout) {
  MutexLock lock(mutex_);
  const int64_t deadline = MonotonicNanos() + SecondsToNanos(timeout);
  while (true) {
    const int64_t now = MonotonicNanos();
    if (stopping_ || (state_ != nullptr && state_->IsFinished(now))) return true;
    if (now >= deadline || (state_ != nullptr && state_->phase.TakeUnreportedFailure()))
      return false;
    changed_.WaitFor(mutex_, std::min<int64_t>(deadline - now, 200 * 1000000));
  }
}

std::string Coordinator::failure() const {
  MutexLock lock(mutex_);
  return state_ == nullptr ? "" : state_->phase.failure();
}

std::vector<int32_t> Coordinator::lost_servers() const {
  MutexLock lock(mutex_);
  return state_ == nullptr ? std::vector<int32_t>() : state_->losses.LostServers();
}

Status Coordinator::Readmit(int32_t rank, const Endpoint& endpoint, const std::string& host) {
  Transaction transaction(this);
  if (state_ == nullptr) return FailedPrecondition("the coordinator serves no job yet");
  BYTEPS_RETURN_IF_ERROR(state_->losses.Readmit(rank, endpoint, host, transaction.now_ns()));
  // The process before may only have been stopped. It has been told to end, and what comes from it
  // is not of this session.
  sessions_[state_->peers.IndexOf(*state_->peers.Find(Role::kServer, rank))] =
      std::make_shared<ControlSession>();
  return OkStatus();
}

void Coordinator::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    if (state_ != nullptr) state_->phase.Stop();
  }
  changed_.NotifyAll();
  heartbeat_.Stop();
  deferred_.Stop();
  absent_.Stop();
  van_->Stop();
}

Status Coordinator::OnHello(const Hello& hello, const std::string& peer_address,
                            ConnectionHandler** handler) {
  MutexLock lock(mutex_);
  if (state_ == nullptr) return Unavailable("rendezvous is not complete yet");
  BYTEPS_RETURN_IF_ERROR(
      CheckHello(hello, state_->job.job_id, state_->job.epoch, Role::kCoordinator, 0));
  const JobPeer* const peer = state_->peers.Find(hello.role, hello.rank);
  if (peer == nullptr) {
    return FailedPrecondition("this job has no " + hello.PeerName() + " (asked for from " +
                              peer_address + ")");
  }
  BYTEPS_RETURN_IF_ERROR(state_->connections.CheckMayConnect(
      hello, *peer, sessions_[state_->peers.IndexOf(*peer)]->has_heard()));
  *handler = this;
  return OkStatus();
}

// OnHello has let it in.
JobPeer* Coordinator::PeerOf(const Connection& connection) {
  return state_->peers.Find(connection.peer().role, connection.peer().rank);
}

void Coordinator::OnOpen(const std::shared_ptr<Connection>& connection) {
  Transaction transaction(this);
  JobPeer* const peer = PeerOf(*connection);
  const size_t index = state_->peers.IndexOf(*peer);
  ControlSession& session = *sessions_[index];
  // The other connection of a new process may have said something meanwhile.
  const Status may_come =
      state_->connections.CheckMayConnect(connection->peer(), *peer, session.has_heard());
  if (!may_come.ok()) return connection->Close(may_come);
  const std::shared_ptr<Connection> before = session.connection();
  if (before != nullptr) before->Close(Unavailable("another connection has taken its place"));
  session.Attach(connection);
  absent_.Remove(index);
  state_->connections.OnOpen(peer, connection->peer_name(), connection->peer().again,
                             transaction.effects());
}

std::shared_ptr<ControlSession> Coordinator::SessionOf(Connection& connection) {
  MutexLock lock(mutex_);
  return sessions_[state_->peers.IndexOf(*PeerOf(connection))];
}

Status Coordinator::OnMessage(Connection& connection, ControlMessage message) {
  Transaction transaction(this);
  return state_->messages.OnMessage(PeerOf(connection), std::move(message), transaction.effects());
}

void Coordinator::OnClosed(Connection& connection, const Status& reason) {
  Transaction transaction(this);
  JobPeer* const peer = PeerOf(connection);
  // Else it has another one.
  if (sessions_[state_->peers.IndexOf(*peer)]->Detach(connection))
    state_->connections.OnClosed(peer, reason, transaction.effects());
}

void Coordinator::OnJoinTimeout(size_t peer, const std::string& why) {
  Transaction transaction(this);
  state_->connections.OnJoinTimeout(&state_->peers[peer], why, transaction.effects());
}

void Coordinator::RunDeferred() {
  Transaction transaction(this);
  state_->OnDeferred(transaction.effects());
}

void Coordinator::Beat(int64_t late_ns) {
  Transaction transaction(this);
  state_->peers.ExcuseSilence(late_ns, transaction.now_ns());
  for (const size_t peer : state_->connections.SilentPeers(transaction.now_ns()))
    state_->peers.NoteHeard(peer, sessions_[peer]->last_heard_ns());
  state_->connections.OnBeat(transaction.effects());
}

}  // namespace byteps

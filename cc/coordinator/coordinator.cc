#include "cc/coordinator/coordinator.h"

#include <algorithm>
#include <limits>

#include "cc/base/clock.h"
#include "cc/base/logging.h"
#include "cc/coordinator/coordinator_outbox.h"

namespace byteps {

namespace {

// How long the others have to read the last messages before their connections are closed.
constexpr int64_t kFarewellNanos = 5 * int64_t{1000000000};

// Messages that wait for a worker which is not there yet: each sends few.
constexpr size_t kMostRelayed = 4096;

}  // namespace

Coordinator::Coordinator(const EngineOptions& options)
    : options_(options),
      absent_([this](size_t peer, const std::string& why) { OnStaysAway(peer, why); }) {
  VanOptions van_options;
  van_options.io_threads = 1;  // so that all see the table's updates in one order
  van_options.secret = options.secret;
  van_options.tls = options.tls;
  van_ = NewTcpVan(van_options);
}

Coordinator::~Coordinator() { Stop(); }

Status Coordinator::Listen(const std::string& address, uint16_t port) {
  return van_->Listen(address, port, this, &endpoint_);
}

Status Coordinator::Start(const JobDescription& job) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (job_.has_value()) return FailedPrecondition("the coordinator serves a job already");
    job_ = job;
    table_ = std::make_unique<TensorTable>(job);
    tuning_ = std::make_unique<Tuning>(job);
    failover_ = std::make_unique<Failover>(job.num_workers());
    const int64_t now = MonotonicNanos();
    for (int32_t rank = 0; rank < job.num_workers() + job.num_servers(); ++rank) {
      Peer peer;
      peer.role = rank < job.num_workers() ? Role::kWorker : Role::kServer;
      peer.rank = rank < job.num_workers() ? rank : rank - job.num_workers();
      peer.last_seen_ns = now;
      peers_.push_back(peer);
    }
  }
  heartbeat_.Start("byteps-beat", options_.heartbeat_interval, [this] { BeatAndCheck(); });
  return OkStatus();
}

bool Coordinator::Wait(double timeout) {
  std::unique_lock<std::mutex> lock(mutex_);
  const int64_t deadline = MonotonicNanos() + SecondsToNanos(timeout);
  while (true) {
    if (stopping_) return true;
    const int64_t now = MonotonicNanos();
    if (AllWorkersGone()) {
      // The others close their connections once they have read that the job has ended.
      if (over_at_ns_ == 0) over_at_ns_ = now;
      if (NobodyConnected() || now > over_at_ns_ + kFarewellNanos) return true;
    }
    // After a loss the others are told and leave by themselves; those that do not are not waited
    // for for ever.
    if (failed_at_ns_ != 0 && now > failed_at_ns_ + SecondsToNanos(options_.shutdown_timeout))
      return true;
    if (now >= deadline) return false;
    changed_.wait_for(lock,
                      std::chrono::nanoseconds(std::min<int64_t>(deadline - now, 200 * 1000000)));
  }
}

std::string Coordinator::failure() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void Coordinator::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  heartbeat_.Stop();
  absent_.Stop();
  van_->Stop();
}

Status Coordinator::OnHello(const Hello& hello, const std::string& peer_address,
                            ConnectionHandler** handler) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!job_.has_value()) return Unavailable("rendezvous is not complete yet");
  BYTEPS_RETURN_IF_ERROR(CheckHello(hello, job_->job_id, job_->epoch));
  const Peer* peer = FindPeer(hello);
  if (peer == nullptr) {
    return FailedPrecondition("this job has no " + hello.PeerName() + " (asked for from " +
                              peer_address + ")");
  }
  const bool was_here = peer->presence == Presence::kConnected || peer->presence == Presence::kLeft;
  if (hello.again ? !was_here : peer->presence != Presence::kExpected) {
    return FailedPrecondition(
        hello.PeerName() + " has been here already; a process cannot come back to a running job");
  }
  *handler = this;
  return OkStatus();
}

void Coordinator::OnOpen(const std::shared_ptr<Connection>& connection) {
  std::lock_guard<std::mutex> lock(mutex_);
  Outbox outbox;
  Peer* peer = FindPeer(connection->peer());
  const std::shared_ptr<Connection> before = peer->session->connection();
  if (before != nullptr) before->Close(Unavailable("another connection has taken its place"));
  if (peer->presence == Presence::kExpected) peer->presence = Presence::kConnected;
  peer->name = connection->peer_name();
  peer->closed_why.clear();
  peer->last_seen_ns = MonotonicNanos();
  if (peer->role == Role::kServer) SetListensAt(peer, job_->server_endpoints[peer->rank]);
  peer->session->Attach(connection);
  absent_.Remove(IndexOf(*peer));
  if (peer->is_returning && !connection->peer().again) Greet(*peer, &outbox);
  for (Relay& relay : peer->relayed) outbox.Add(*peer, std::move(relay));
  peer->relayed.clear();
  LogInfo(connection->peer_name() + (connection->peer().again ? " is here again" : " is here"));
  WelcomeBackIfReady(&outbox);
}

std::shared_ptr<ControlSession> Coordinator::SessionOf(Connection& connection) {
  std::lock_guard<std::mutex> lock(mutex_);
  return FindPeer(connection.peer())->session;
}

Status Coordinator::OnMessage(Connection& connection, ControlMessage message) {
  std::lock_guard<std::mutex> lock(mutex_);
  Outbox outbox;
  Peer* peer = FindPeer(connection.peer());
  peer->last_seen_ns = MonotonicNanos();
  if (const auto* request = std::get_if<DeclareRequest>(&message)) {
    if (peer->role != Role::kWorker)
      return InvalidArgument(connection.peer_name() + " may not declare tensors");
    const auto is_its = [&](const PendingReply& reply) { return reply.worker == peer->rank; };
    if (std::any_of(pending_replies_.begin(), pending_replies_.end(), is_its))
      return InvalidArgument(connection.peer_name() + " declared without waiting for the answer");
    Declare(*request, *peer, &outbox);
  } else if (const auto* ack = std::get_if<TableAck>(&message)) {
    if (ack->update_id >= next_update_id_)
      return InvalidArgument(connection.peer_name() + " acknowledged the future");
    peer->acked_update = std::max(peer->acked_update, ack->update_id);
    OnServersAck(&outbox);
  } else if (std::holds_alternative<Goodbye>(message)) {
    if (peer->role != Role::kWorker)
      return InvalidArgument(connection.peer_name() + " may not say goodbye");
    Leave(peer, &outbox);
  } else if (const auto* lost = std::get_if<PeerLost>(&message)) {
    Peer* const to = FindPeer(lost->role, lost->rank);
    if (peer->role != Role::kWorker || lost->role != Role::kServer || to == nullptr)
      return InvalidArgument(connection.peer_name() + " may not say that this process is lost");
    const bool is_news = to->presence != Presence::kLost && to->presence != Presence::kLeft &&
                         !to->is_returning;  // it speaks of the process before
    if (is_news && !AllWorkersGone())
      Lose(to, lost->description + " (says " + connection.peer_name() + ")", &outbox);
  } else if (const auto* report = std::get_if<LinkReport>(&message)) {
    if (peer->role != Role::kWorker)
      return InvalidArgument(connection.peer_name() + " may not report what its link carries");
    if (const auto sizes = tuning_->OnReport(peer->rank, *report)) Tune(*sizes, &outbox);
  } else if (const auto* held = std::get_if<RoundsHeld>(&message)) {
    if (peer->role != Role::kWorker)
      return InvalidArgument(connection.peer_name() + " has no rounds to hold");
    tuning_->OnHeld(peer->rank, *held);
    RetuneIfReady(&outbox);
  } else if (const auto* parts = std::get_if<PartsHeld>(&message)) {
    if (peer->role != Role::kWorker)
      return InvalidArgument(connection.peer_name() + " holds no results");
    failover_->OnHeld(peer->rank, *parts);
    MovePartsIfReady(&outbox);
  } else if (const auto* results = std::get_if<ResultsHeld>(&message)) {
    if (peer->role != Role::kWorker)
      return InvalidArgument(connection.peer_name() + " has no results");
    ResultsHeld all_have{failover_->OnResults(peer->rank, *results)};
    if (!all_have.tensors.empty()) ToRole(Role::kWorker, all_have, &outbox);
  } else if (auto* relay = std::get_if<Relay>(&message)) {
    Peer* const to = FindPeer(Role::kWorker, relay->to);
    if (peer->role != Role::kWorker || relay->from != peer->rank || to == nullptr)
      return InvalidArgument(connection.peer_name() + " sent what cannot be passed on");
    if (to->relayed.size() >= kMostRelayed)
      return ResourceExhausted(connection.peer_name() + " sent too much to one who is not there");
    if (to->presence == Presence::kExpected)
      to->relayed.push_back(std::move(*relay));
    else
      outbox.Add(*to, std::move(*relay));
  } else if (auto* query = std::get_if<StallQuery>(&message)) {
    if (peer->role != Role::kWorker || query->from != peer->rank)
      return InvalidArgument(connection.peer_name() + " may not ask as another worker");
    ToRole(Role::kWorker, *query, &outbox);
  } else if (auto* answer = std::get_if<StallAnswer>(&message)) {
    Peer* const to = FindPeer(Role::kWorker, answer->to);
    if (peer->role != Role::kWorker || answer->from != peer->rank || to == nullptr)
      return InvalidArgument(connection.peer_name() + " sent an answer that cannot be passed on");
    outbox.Add(*to, std::move(*answer));
  } else if (const auto* reachable = std::get_if<Reachable>(&message)) {
    if (peer->role == Role::kWorker) SetListensAt(peer, {reachable->host, reachable->port});
  } else if (!std::holds_alternative<Heartbeat>(message)) {
    return InvalidArgument(connection.peer_name() +
                           " sent a message that only the coordinator sends");
  }
  return OkStatus();
}

void Coordinator::OnClosed(Connection& connection, const Status& reason) {
  std::lock_guard<std::mutex> lock(mutex_);
  Outbox outbox;
  Peer* peer = FindPeer(connection.peer());
  if (!peer->session->Detach(connection)) return;  // it has another one
  changed_.notify_all();
  if (stopping_ || peer->presence != Presence::kConnected) return;
  if (peer->role == Role::kServer && AllWorkersGone()) return;
  const std::string process =
      peer->role == Role::kServer ? job_->InProcessOf(peer->rank) : std::string();
  peer->closed_why =
      connection.peer_name() + process + " ended without a goodbye: " + reason.message();
  if (reason.code() == StatusCode::kUnavailable)
    return absent_.Add(IndexOf(*peer), peer->listens_at);
  Lose(peer, peer->closed_why, &outbox);
}

// Only where it comes from: behind a translation of addresses another process may refuse for it.
void Coordinator::SetListensAt(Peer* peer, const Endpoint& endpoint) {
  if (peer->name.find(" at " + endpoint.host + ":") != std::string::npos)
    peer->listens_at = endpoint;
}

void Coordinator::OnStaysAway(size_t index, const std::string& why) {
  std::lock_guard<std::mutex> lock(mutex_);
  Outbox outbox;
  Peer& peer = peers_[index];
  if (stopping_ || peer.presence != Presence::kConnected || peer.session->connection() != nullptr)
    return;
  if (peer.role == Role::kServer && AllWorkersGone()) return;
  Lose(&peer, peer.closed_why + "; " + why, &outbox);
}

Coordinator::Peer* Coordinator::FindPeer(Role role, int32_t rank) {
  for (Peer& peer : peers_) {
    if (peer.role == role && peer.rank == rank) return &peer;
  }
  return nullptr;
}

void Coordinator::Declare(const DeclareRequest& request, const Peer& from, Outbox* outbox) {
  PendingReply pending;
  pending.worker = from.rank;
  pending.request_id = request.request_id;
  TableUpdate update;
  update.update_id = next_update_id_;
  for (const TensorTable::Outcome& outcome : table_->Declare(request.tensors, update.update_id)) {
    if (outcome.row != nullptr) {
      pending.needed_update = std::max(pending.needed_update, outcome.row->update_id);
      if (outcome.added) update.entries.push_back(outcome.row->entry);
    }
    pending.results.emplace_back(outcome.status, outcome.row);
  }
  if (!update.entries.empty()) {
    ++next_update_id_;
    ToRole(Role::kServer, update, outbox);
  }
  pending_replies_.push_back(std::move(pending));
  SendReadyReplies(outbox);
}

uint64_t Coordinator::AckedByAll() const {
  uint64_t acked = std::numeric_limits<uint64_t>::max();
  for (const Peer& peer : peers_) {
    if (peer.role == Role::kServer && peer.presence != Presence::kLost && !peer.is_returning)
      acked = std::min(acked, peer.acked_update);
  }
  return acked;
}

void Coordinator::OnServersAck(Outbox* outbox) {
  EndFailoverIfReady(outbox);
  SendReadyReplies(outbox);
  RetuneIfReady(outbox);
}

void Coordinator::Tune(const TunedSizes& sizes, Outbox* outbox) {
  const auto bytes = [](const char* what, uint64_t count) {
    return count == 0 ? "" : "; " + std::string(what) + ": " + std::to_string(count) + " bytes";
  };
  LogInfo("by what the workers' links carry, " + tuning_->Links() +
          bytes("on the way", sizes.credit_bytes) + bytes("longest part", sizes.part_bytes));
  if (tuning_->LinksDiffer()) {
    LogWarning("the slowest link holds up all workers: " + tuning_->Links() +
               "; look at its host, or say what links carry with BYTEPS_LINK_BYTES_PER_SECOND");
  }
  Retune retune;
  retune.credit_bytes = sizes.credit_bytes;
  retune.unsent_bytes = unsent_bytes_ = sizes.unsent_bytes;
  ToRole(Role::kServer, retune, outbox);
  TableUpdate update;
  update.update_id = next_update_id_;
  if (sizes.part_bytes > 0) update.entries = table_->CutAgain(sizes.part_bytes, update.update_id);
  if (update.entries.empty()) return ToRole(Role::kWorker, retune, outbox);
  for (const TableEntry& entry : update.entries) retune.cuts.push_back({entry, 0});
  retune_ = std::move(retune);
  retune_update_ = next_update_id_++;
  ToRole(Role::kServer, update, outbox);
  ToRole(Role::kWorker, HoldRounds{}, outbox);
}

void Coordinator::RetuneIfReady(Outbox* outbox) {
  if (!retune_.has_value() || !tuning_->all_hold() || AckedByAll() < retune_update_ ||
      failover_->is_running())
    return;
  for (NewCut& cut : retune_->cuts) {
    cut.entry = table_->row(cut.entry).entry;
    cut.first_round = tuning_->FirstRoundOfAll(cut.entry.key);
  }
  ToRole(Role::kWorker, *retune_, outbox);
  retune_.reset();
}

void Coordinator::SendReadyReplies(Outbox* outbox) {
  if (failover_->is_running()) return;
  const uint64_t acked = AckedByAll();
  for (auto it = pending_replies_.begin(); it != pending_replies_.end();) {
    if (it->needed_update > acked) {
      ++it;
      continue;
    }
    DeclareReply reply;
    reply.request_id = it->request_id;
    for (const auto& [status, row] : it->results)
      reply.results.push_back({status, row != nullptr ? row->entry : TableEntry()});
    outbox->Add(*FindPeer(Role::kWorker, it->worker), std::move(reply));
    it = pending_replies_.erase(it);
  }
}

void Coordinator::Leave(Peer* peer, Outbox* outbox) {
  peer->presence = Presence::kLeft;
  // The leaver, too: that is how it knows that it may close its connection.
  ToAll(Goodbye{peer->rank}, outbox);
  if (AllWorkersGone()) ToAll(JobEnded{}, outbox);
  tuning_->OnGone(peer->rank);
  RetuneIfReady(outbox);
  failover_->OnGone(peer->rank);
  MovePartsIfReady(outbox);
  changed_.notify_all();
}

void Coordinator::Lose(Peer* peer, const std::string& what, Outbox* outbox) {
  if (peer->is_returning) return LoseReturning(peer, what, outbox);
  if (peer->role == Role::kServer && CanGoOnWithout(*peer)) return GoOnWithout(peer, what, outbox);
  peer->presence = Presence::kLost;
  LogError(what);
  if (failure_.empty()) {
    failure_ = what;
    failed_at_ns_ = MonotonicNanos();
  }
  // The peer, too: one that was only stopped learns what it has missed.
  ToAll(PeerLost{peer->role, peer->rank, what}, outbox);
  peer->session->Forget();
  if (AllWorkersGone()) ToAll(JobEnded{}, outbox);
  changed_.notify_all();
}

void Coordinator::ToAll(const ControlMessage& message, Outbox* outbox) {
  for (const Peer& peer : peers_) outbox->Add(peer, message);
}

void Coordinator::ToRole(Role role, const ControlMessage& message, Outbox* outbox) {
  for (const Peer& peer : peers_) {
    if (peer.role == role) outbox->Add(peer, message);
  }
}

bool Coordinator::AllWorkersGone() const {
  return job_.has_value() && std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
           return peer.role != Role::kWorker || peer.presence == Presence::kLeft ||
                  peer.presence == Presence::kLost;
         });
}

bool Coordinator::NobodyConnected() const {
  return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) {
    return peer.session->connection() == nullptr || peer.presence == Presence::kLost;
  });
}

void Coordinator::BeatAndCheck() {
  std::lock_guard<std::mutex> lock(mutex_);
  Outbox outbox;
  const int64_t now = MonotonicNanos();
  for (Peer& peer : peers_) {
    outbox.Add(peer, Heartbeat{});
    const bool expected = peer.presence == Presence::kExpected;
    if (!expected && peer.presence != Presence::kConnected) continue;
    // A peer that has the address book but does not come has as long as it may take to connect.
    // One that is to come back was there a moment ago.
    const bool is_new = expected && !peer.is_returning;
    const double limit = is_new ? options_.connect_timeout : options_.heartbeat_timeout;
    if (now - peer.last_seen_ns <= SecondsToNanos(limit)) continue;
    const std::string name =
        !peer.name.empty() ? peer.name
                           : std::string(RoleName(peer.role)) + " " + std::to_string(peer.rank);
    const std::string seconds = std::to_string((now - peer.last_seen_ns) / 1000000000) + " s";
    Lose(&peer, name + (expected ? " never connected, for " : " has been silent for ") + seconds,
         &outbox);
  }
}

}  // namespace byteps

#include "cc/coordinator/coordinator.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "cc/base/clock.h"
#include "cc/base/logging.h"
#include "cc/coordinator/coordinator_outbox.h"
#include "cc/wire/control_frame.h"

namespace byteps {

namespace {

// How long the others have to read the last messages before their connections are closed.
constexpr int64_t kFarewellNanos = 5 * int64_t{1000000000};

// Servers are told together of those who leave so shortly after each other.
constexpr double kSoonSeconds = 0.05;

// All who wait say so within the time between two looks of a worker (worker/state/watch.h). All
// are asked then, and answer on engine threads; who does not is stopped, or unreachable.
constexpr int64_t kCollectNanos = 600 * int64_t{1000000};
constexpr int64_t kAnswerNanos = 2 * int64_t{1000000000};

// How the end of a peer without a goodbye begins to be told. One that hosts a server is a worker.
std::string DescribeEnd(const JobDescription& job, Role role, int32_t rank,
                        const std::string& name) {
  const std::string ended = " ended without a goodbye: ";
  const int32_t worker = role == Role::kServer ? job.HostOfServer(rank) : -1;
  if (worker < 0) return name + ended;
  return "worker " + std::to_string(worker) + ended + name + job.InProcessOf(rank) + ": ";
}

}  // namespace

Coordinator::Coordinator(const EngineOptions& options, std::unique_ptr<Van> van)
    : options_(options),
      van_(std::move(van)),
      absent_([this](const Endpoint& endpoint,
                     double timeout) { return van_->IsRefusedAt(endpoint, timeout); },
              [this](size_t peer, const std::string& why) { OnStaysAway(peer, why); }) {
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
    if (job_.has_value()) return FailedPrecondition("the coordinator serves a job already");
    job_ = job;
    table_ = std::make_unique<TensorTable>(job);
    tuning_ = std::make_unique<Tuning>(job);
    failover_ = std::make_unique<Failover>(job.num_workers());
    workers_here_ = job.num_workers();
    acked_updates_ = std::make_unique<LowestRound>(job.num_servers());
    const int64_t now = MonotonicNanos();
    for (int32_t rank = 0; rank < job.num_workers() + job.num_servers(); ++rank) {
      Peer peer;
      peer.role = rank < job.num_workers() ? Role::kWorker : Role::kServer;
      peer.rank = rank < job.num_workers() ? rank : rank - job.num_workers();
      peer.last_seen_ns = now;
      peers_.push_back(peer);
    }
  }
  heartbeat_.Start("byteps-beat", options_.timeouts.heartbeat_interval, [this] { BeatAndCheck(); });
  return OkStatus();
}

bool Coordinator::Wait(double timeout) {
  MutexLock lock(mutex_);
  const int64_t deadline = MonotonicNanos() + SecondsToNanos(timeout);
  while (true) {
    if (stopping_) return true;
    const int64_t now = MonotonicNanos();
    if (AllWorkersGone()) {
      // The others close their connections once they have read that the job has ended.
      if (over_at_ns_ == 0) over_at_ns_ = now;
      if (connected_ == 0 || now > over_at_ns_ + kFarewellNanos) return true;
    }
    // After a loss the others are told and leave by themselves; those that do not are not waited
    // for for ever.
    if (failed_at_ns_ != 0 &&
        now > failed_at_ns_ + SecondsToNanos(options_.timeouts.shutdown_timeout))
      return true;
    if (now >= deadline || std::exchange(failure_is_news_, false)) return false;
    changed_.WaitFor(mutex_, std::min<int64_t>(deadline - now, 200 * 1000000));
  }
}

std::string Coordinator::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

void Coordinator::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  heartbeat_.Stop();
  soon_.Stop();
  absent_.Stop();
  van_->Stop();
}

Status Coordinator::OnHello(const Hello& hello, const std::string& peer_address,
                            ConnectionHandler** handler) {
  MutexLock lock(mutex_);
  if (!job_.has_value()) return Unavailable("rendezvous is not complete yet");
  BYTEPS_RETURN_IF_ERROR(CheckHello(hello, job_->job_id, job_->epoch, Role::kCoordinator, 0));
  Peer* const peer = FindPeer(hello);
  if (peer == nullptr) {
    return FailedPrecondition("this job has no " + hello.PeerName() + " (asked for from " +
                              peer_address + ")");
  }
  BYTEPS_RETURN_IF_ERROR(CheckMayCome(hello, *peer));
  *handler = this;
  return OkStatus();
}

// Who has said nothing yet may not have heard that it was let in, and tries again.
Status Coordinator::CheckMayCome(const Hello& hello, const Peer& peer) const {
  const bool is_here = peer.presence == Presence::kConnected;
  const bool was_here = is_here || peer.presence == Presence::kLeft;
  const bool is_expected =
      peer.presence == Presence::kExpected || (is_here && !peer.session->has_heard());
  if (hello.again ? was_here : is_expected) return OkStatus();
  return FailedPrecondition(hello.PeerName() +
                            " has been here already; a process cannot come back to a running job");
}

void Coordinator::OnOpen(const std::shared_ptr<Connection>& connection) {
  MutexLock lock(mutex_);
  Outbox outbox;
  Peer* peer = FindPeer(connection->peer());
  // The other connection of a new process may have said something meanwhile.
  const Status may_come = CheckMayCome(connection->peer(), *peer);
  if (!may_come.ok()) return connection->Close(may_come);
  const std::shared_ptr<Connection> before = peer->session->connection();
  if (before != nullptr) before->Close(Unavailable("another connection has taken its place"));
  if (before == nullptr) ++connected_;
  const bool is_new = peer->presence == Presence::kExpected;
  if (is_new) SetPresence(peer, Presence::kConnected);
  peer->name = connection->peer_name();
  peer->closed_why.clear();
  peer->last_seen_ns = MonotonicNanos();
  if (peer->role == Role::kServer) SetListensAt(peer, job_->server_endpoints[peer->rank]);
  peer->session->Attach(connection);
  absent_.Remove(IndexOf(*peer));
  if (peer->is_returning && !connection->peer().again) Greet(*peer, &outbox);
  if (is_new && first_lost_.has_value()) outbox.Add(*peer, *first_lost_);
  for (Relay& relay : peer->relayed) outbox.Add(*peer, std::move(relay));
  peer->relayed.clear();
  if (connection->peer().again)
    LogInfo(peer->name + " is here again", {"process_back", FieldsOf(*peer)});
  else
    LogInfo(peer->name + " is here", {"process_here", FieldsOf(*peer)});
  WelcomeBackIfReady(&outbox);
}

std::shared_ptr<ControlSession> Coordinator::SessionOf(Connection& connection) {
  MutexLock lock(mutex_);
  return FindPeer(connection.peer())->session;
}

void Coordinator::OnClosed(Connection& connection, const Status& reason) {
  MutexLock lock(mutex_);
  Outbox outbox;
  Peer* peer = FindPeer(connection.peer());
  if (!peer->session->Detach(connection)) return;  // it has another one
  if (peer->presence != Presence::kLost) --connected_;
  if (connected_ == 0) changed_.NotifyAll();
  if (stopping_ || peer->presence != Presence::kConnected) return;
  if (peer->role == Role::kServer && AllWorkersGone()) return;
  peer->closed_why =
      DescribeEnd(*job_, peer->role, peer->rank, connection.peer_name()) + reason.message();
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
  MutexLock lock(mutex_);
  Outbox outbox;
  Peer& peer = peers_[index];
  if (stopping_ || peer.presence != Presence::kConnected || peer.session->connection() != nullptr)
    return;
  if (peer.role == Role::kServer && AllWorkersGone()) return;
  Lose(&peer, peer.closed_why + "; " + why, &outbox);
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
  if (pending.needed_update <= AckedByAll() && !failover_->is_running())
    return SendReply(pending, outbox);
  FindPeer(Role::kWorker, from.rank)->is_declaring = true;
  pending_replies_.push_back(std::move(pending));
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
              bytes("in flight", sizes.credit_bytes) + bytes("longest part", sizes.part_bytes) +
              "; compression=\"auto\": " + (sizes.compresses ? "int8" : "none"),
          {"retuned",
           {{"credit_bytes", static_cast<int64_t>(sizes.credit_bytes)},
            {"part_bytes", static_cast<int64_t>(sizes.part_bytes)}}});
  if (tuning_->LinksDiffer()) {
    LogWarning("the slowest link holds up all workers: " + tuning_->Links() +
                   "; look at its host, or say what links carry with BYTEPS_LINK_BYTES_PER_SECOND",
               {"slow_link", {}});
  }
  Retune retune;
  retune.credit_bytes = sizes.credit_bytes;
  retune.unsent_bytes = unsent_bytes_ = sizes.unsent_bytes;
  ToRole(Role::kServer, retune, outbox);
  TableUpdate update;
  update.update_id = next_update_id_;
  update.entries = table_->CutAgain(sizes.part_bytes, sizes.compresses, update.update_id);
  if (update.entries.empty()) return ToRole(Role::kWorker, retune, outbox);
  encoded_reply_ = {};
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
    FindPeer(Role::kWorker, it->worker)->is_declaring = false;
    SendReply(*it, outbox);
    it = pending_replies_.erase(it);
  }
}

void Coordinator::SendReply(const PendingReply& pending, Outbox* outbox) {
  EncodedReply& last = encoded_reply_;
  const auto is_same = [](const auto& a, const auto& b) {
    return a.second != nullptr && a.second == b.second;
  };
  if (last.frame.payload == nullptr || last.request_id != pending.request_id ||
      !std::equal(pending.results.begin(), pending.results.end(), last.results.begin(),
                  last.results.end(), is_same)) {
    DeclareReply reply;
    reply.request_id = pending.request_id;
    for (const auto& [status, row] : pending.results)
      reply.results.push_back({status, row != nullptr ? row->entry : TableEntry()});
    last = {pending.request_id, pending.results, ControlFrame(reply)};
  }
  outbox->Add(*FindPeer(Role::kWorker, pending.worker), last.frame);
}

void Coordinator::Leave(Peer* peer, Outbox* outbox) {
  if (peer->presence == Presence::kLeft) return;
  SetPresence(peer, Presence::kLeft);
  // That is how it knows that it may close its connection.
  outbox->Add(*peer, Goodbye{{peer->rank}});
  have_left_.push_back(peer->rank);
  BeginSoon();
  EndJobIfOver(outbox);
  tuning_->OnGone(peer->rank);
  RetuneIfReady(outbox);
  failover_->OnGone(peer->rank);
  MovePartsIfReady(outbox);
  changed_.NotifyAll();
}

void Coordinator::BeginSoon() {
  if (has_soon_ || stopping_) return;
  has_soon_ = true;
  soon_.Start("byteps-soon", kSoonSeconds, [this] { DoSoon(); });
}

// Only servers hear who has left: a worker learns of it when it waits for the leaver.
void Coordinator::DoSoon() {
  MutexLock lock(mutex_);
  Outbox outbox;
  if (!have_left_.empty()) ToRole(Role::kServer, Goodbye{std::exchange(have_left_, {})}, &outbox);
  if (stall_digest_ != nullptr) AttendToStalls(&outbox);
}

void Coordinator::AttendToStalls(Outbox* outbox) {
  StallDigest& digest = *stall_digest_;
  const int64_t now = MonotonicNanos();
  if (!digest.was_asked()) {
    if (now > digest.begin_ns() + kCollectNanos) ToRole(Role::kWorker, digest.Ask(now), outbox);
    return;
  }
  if (!digest.IsComplete() && now < digest.asked_ns() + kAnswerNanos) return;
  const std::string text = digest.Text();
  // The worker that reports warns of it.
  LogInfo(text, {"stalled", {}});
  const OutgoingFrame report = ControlFrame(StallNotice{digest.reporter(), text});
  const OutgoingFrame reference = ControlFrame(StallNotice{digest.reporter(), ""});
  for (const auto& [rank, query] : digest.queries()) {
    const bool is_told = rank == digest.reporter() || query.wants_text;
    outbox->Add(peers_[rank], is_told ? report : reference);
  }
  stall_digest_.reset();
}

void Coordinator::EndJobIfOver(Outbox* outbox) {
  if (!AllWorkersGone()) return;
  if (!have_left_.empty()) ToRole(Role::kServer, Goodbye{std::exchange(have_left_, {})}, outbox);
  ToAll(JobEnded{}, outbox);
}

void Coordinator::Lose(Peer* peer, const std::string& what, Outbox* outbox) {
  if (peer->is_returning) return LoseReturning(peer, what, outbox);
  if (peer->role == Role::kServer && CanGoOnWithout(*peer)) return GoOnWithout(peer, what, outbox);
  SetPresence(peer, Presence::kLost);
  // Others may follow it by the hundred, because of it.
  if (failure_.empty())
    LogError(what, {"process_lost", FieldsOf(*peer)});
  else
    LogInfo(what, {"process_lost", FieldsOf(*peer)});
  const PeerLost lost{peer->role, peer->rank, what};
  // The first one ends the job for all. The peer, too: one that was only stopped learns what it has
  // missed.
  if (failure_.empty()) {
    failure_ = what;
    failed_at_ns_ = MonotonicNanos();
    failure_is_news_ = true;
    first_lost_ = lost;
    ToAll(lost, outbox);
  } else {
    outbox->Add(*peer, lost);
  }
  peer->session->Forget();
  EndJobIfOver(outbox);
  changed_.NotifyAll();
}

// What has arrived and waits until this process has time for it is no silence. That costs a system
// call, which is made for those alone that look silent.
bool Coordinator::IsSilent(const Peer& peer, int64_t now_ns, int64_t limit_ns) const {
  return now_ns - peer.last_seen_ns > limit_ns && now_ns - peer.session->last_heard_ns() > limit_ns;
}

std::vector<int32_t> Coordinator::SilentServers(int64_t now_ns) const {
  // A beat, and what it may be late.
  const int64_t limit = SecondsToNanos(1.2 * options_.timeouts.heartbeat_interval);
  std::vector<int32_t> silent;
  for (const Peer& peer : peers_) {
    const bool is_here = peer.presence == Presence::kConnected;
    if (peer.role == Role::kServer && is_here && IsSilent(peer, now_ns, limit))
      silent.push_back(peer.rank);
  }
  return silent;
}

void Coordinator::BeatAndCheck() {
  MutexLock lock(mutex_);
  Outbox outbox;
  const int64_t now = MonotonicNanos();
  const OutgoingFrame to_workers = ControlFrame(Heartbeat{SilentServers(now)});
  const OutgoingFrame to_servers = ControlFrame(Heartbeat{});
  for (Peer& peer : peers_) {
    const bool is_worker = peer.role == Role::kWorker;
    outbox.Add(peer, is_worker ? to_workers : to_servers, /*is_heartbeat=*/true);
    const bool expected = peer.presence == Presence::kExpected;
    if (!expected && peer.presence != Presence::kConnected) continue;
    // A peer that has the address book but does not come has as long as it may take to connect.
    // One that is to come back was there a moment ago.
    const bool is_new = expected && !peer.is_returning;
    const double limit =
        is_new ? options_.timeouts.connect_timeout : options_.timeouts.heartbeat_timeout;
    if (!IsSilent(peer, now, SecondsToNanos(limit))) continue;
    const std::string name =
        !peer.name.empty() ? peer.name
                           : std::string(RoleName(peer.role)) + " " + std::to_string(peer.rank);
    std::string reason = name + (expected ? " never connected, for " : " has been silent for ");
    reason += std::to_string((now - peer.last_seen_ns) / 1000000000) + " s";
    Lose(&peer, reason, &outbox);
  }
}

}  // namespace byteps

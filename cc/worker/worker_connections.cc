// The part of Worker that has the connections to the servers: made, broken, and made again, and
// what comes over them.
#include <memory>
#include <string>
#include <utility>

#include "cc/base/clock.h"
#include "cc/base/members.h"
#include "cc/van/buffer_sink.h"
#include "cc/worker/worker_transaction.h"

namespace byteps {
namespace {

// The coordinator gives up who has not come back within kReconnectSeconds.
constexpr auto kLossPatienceNanos = static_cast<int64_t>((kReconnectSeconds + 0.5) * 1e9);
constexpr int64_t kLossLookNanos = 100 * 1000000;

}  // namespace

void Worker::PreparePaths() {
  reconnectors_.resize(job_.num_servers());
  for (int32_t server = 0; server < job_.num_servers(); ++server) {
    for (uint32_t path = 0; path < static_cast<uint32_t>(job_.PathsPerServer()); ++path) {
      reconnectors_[server].push_back(std::make_unique<Reconnector>(
          [=](double seconds) { return Connect(server, path, seconds); },
          [=](const Status& reason, int life) { LoseServer(server, life, reason); },
          // It may be stopped, or this worker be cut off, for less than the heartbeat timeout.
          [=] { return !coordinator_->KnowsToLive(server); }));
    }
  }
  MutexLock lock(mutex_);
  state_.servers.Prepare(job_);
}

Status Worker::ConnectToServers() {
  const auto paths = static_cast<uint32_t>(job_.PathsPerServer());
  for (int32_t server = 0; server < job_.num_servers(); ++server) {
    for (uint32_t path = 0; path < paths; ++path) {
      const Status status = Connect(server, path, job_.options.timeouts.connect_timeout);
      if (!status.ok() && !AwaitLoss(server)) return status;
    }
  }
  return OkStatus();
}

Status Worker::Connect(int32_t server, uint32_t path, double seconds) {
  PathEvents::Attempt attempt;
  {
    MutexLock lock(mutex_);
    attempt = state_.path_events.BeginAttempt(server, path);
  }
  if (attempt.is_open) return OkStatus();
  Hello hello;
  hello.job_id = job_.job_id;
  hello.epoch = job_.epoch;
  hello.role = Role::kWorker;
  hello.rank = rank_;
  hello.path = path;
  hello.again = attempt.again;
  hello.same_host = job_.worker_hosts[rank_] == attempt.host;
  Hello peer;
  peer.role = Role::kServer;
  peer.rank = server;
  peer.path = path;
  peer.again = attempt.again;
  // The coordinator may come to know that the server is lost, and this worker may stop.
  const ConnectTimeout timeout(seconds, [=] { return CheckMayConnect(server); });
  std::shared_ptr<Connection> connection;  // OnOpen has kept it already
  Status status = van_->Connect(attempt.endpoint, hello, peer, this, timeout, &connection);
  BYTEPS_RETURN_IF_ERROR(CheckMayConnect(server));
  const bool took_too_long =
      status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kDeadlineExceeded;
  if (attempt.again || !took_too_long) return status;
  return Status(status.code(), status.message() + "; tried for " +
                                   std::to_string(static_cast<int64_t>(seconds)) +
                                   " s (BYTEPS_CONNECT_TIMEOUT)");
}

Status Worker::CheckMayConnect(int32_t server) const {
  MutexLock lock(mutex_);
  return state_.path_events.CheckMayConnect(server);
}

// Until the coordinator knows, somebody else may listen at a lost server's port already, and refuse
// this worker.
bool Worker::AwaitLoss(int32_t server) {
  MutexLock lock(mutex_);
  const int64_t deadline_ns = MonotonicNanos() + kLossPatienceNanos;
  while (job_.MayLoseServers() && !state_.servers[server].was_lost &&
         state_.lifecycle.is_running() && MonotonicNanos() < deadline_ns)
    heard_.WaitFor(mutex_, kLossLookNanos);
  return state_.servers[server].was_lost;
}

void Worker::OnOpen(const std::shared_ptr<Connection>& connection) {
  Transaction transaction(this);
  state_.path_events.OnOpen(connection, SourceOf(*connection), connection->peer().again,
                            transaction.effects());
}

// OnClosed comes later, from an I/O thread, when nothing more is received.
void Worker::ChangeConnections(const Effects& effects) {
  if (effects.progress.has_value())
    reconnectors_[effects.progress->server][effects.progress->path]->NoteProgress();
  for (const Effects::Close& close : effects.closes) close.connection->Close(close.reason);
  for (const Effects::Revival& revival : effects.revivals) {
    for (const auto& reconnector : reconnectors_[revival.server])
      reconnector->Revive(revival.reason);
  }
  for (const Effects::UnsentLimit& limit : effects.limits)
    limit.connection->LimitUnsent(limit.bytes);
}

void Worker::OnClosed(Connection& connection, const Status& reason) {
  const Hello& peer = connection.peer();
  int life = 0;
  {
    Transaction transaction(this);
    if (!state_.path_events.OnClosed(SourceOf(connection), &life, transaction.effects())) return;
  }
  reconnectors_[peer.rank][peer.path]->OnClosed(
      Status(reason.code(), connection.peer_name() + job_.InProcessOf(peer.rank) +
                                " is lost: " + reason.message()),
      life);
}

void Worker::LoseServer(int32_t server, int life, const Status& reason) {
  PathEvents::Loss loss;
  {
    MutexLock lock(mutex_);
    loss = state_.path_events.OnServerUnreachable(server, life);
    if (loss == PathEvents::Loss::kNothing) return;
    // Before a goodbye that may follow: the coordinator must not take this for a good end. And
    // before PartProgress, without which the server cannot come again: this one is meant.
    coordinator_->Send(PeerLost{Role::kServer, server, reason.message()});
  }
  // Else it is the coordinator that says how this goes on.
  if (loss == PathEvents::Loss::kEndsJob)
    Fail(Unavailable(reason.message()), LostPeer{Role::kServer, server});
}

Status Worker::OnHeader(Connection& connection, const FrameHeader& header,
                        std::shared_ptr<PayloadSink>* sink) {
  if (header.type == FrameType::kControl) {
    *sink = std::make_shared<BufferSink>();
    return OkStatus();
  }
  if (header.type != FrameType::kReply)
    return Internal(connection.peer_name() + " sent a frame that is not a reply");
  std::shared_ptr<Exchange> exchange;
  MutexLock lock(mutex_);
  BYTEPS_RETURN_IF_ERROR(state_.replies.OnHeader(SourceOf(connection), header, Now(), &exchange));
  if (exchange == nullptr) return OkStatus();
  return NewSink(connection, exchange, header, sink);
}

// What receives the payload of a reply.
Status Worker::NewSink(const Connection& connection, const std::shared_ptr<Exchange>& exchange,
                       const FrameHeader& header, std::shared_ptr<PayloadSink>* sink) const {
  const TensorDescription& tensor = exchange->request.tensor;
  if (header.status != StatusCode::kOk) {
    *sink = std::make_shared<BufferSink>();
    return OkStatus();
  }
  const auto receiver = std::static_pointer_cast<ExchangeWithOutput>(exchange);
  if (header.codec != CodecId::kRaw) {
    const Status status = DecodingSink::New(receiver, header, sink);
    if (status.ok()) return OkStatus();
    return Internal(connection.peer_name() + ", " + exchange->Name() + ", part " +
                    std::to_string(header.part) + ": " + status.message());
  }
  if (tensor.kind == ExchangeKind::kRowSum) {
    const Status status = RowSumSink::New(receiver, header, sink);
    if (status.ok()) return OkStatus();
    return Internal(connection.peer_name() + ", " + exchange->Name() + ": " + status.message());
  }
  if (tensor.HasOwnRows()) {
    const int32_t num_workers = Members::Of(tensor.name).Count(job_.num_workers());
    if (header.payload_bytes < num_workers * sizeof(int64_t))
      return Internal(exchange->Name() + ": a reply without row counts");
    *sink = std::make_shared<RowsSink>(receiver, num_workers, header.payload_bytes);
    return OkStatus();
  }
  const uint64_t expected = exchange->ReplyBytes(header.part, rank_);
  // Raw is what is not compressed, and a result that comes from another worker (rule 15).
  if (header.payload_bytes != expected) {
    return Internal(connection.peer_name() + " sent " + std::to_string(header.payload_bytes) +
                    " bytes for " + exchange->Name() + ", part " + std::to_string(header.part) +
                    " of " + std::to_string(expected));
  }
  *sink = std::make_shared<RegionSink>(receiver, header.part);
  return OkStatus();
}

Status Worker::OnFrame(Connection& connection, const FrameHeader& header,
                       std::shared_ptr<PayloadSink> sink) {
  if (header.type == FrameType::kControl) return OnServerMessage(connection, sink.get());
  ReceivedPayload payload;
  payload.was_received = sink != nullptr;
  if (sink != nullptr && header.status != StatusCode::kOk)
    payload.text = static_cast<BufferSink*>(sink.get())->Take();
  else if (sink != nullptr)
    payload.status = static_cast<ResultSink*>(sink.get())->status();
  Transaction transaction(this);
  return state_.replies.OnFrame(SourceOf(connection), header, std::move(payload),
                                transaction.effects());
}

// A server that has lost the coordinator, which this worker hears, is what is lost: others may do
// without it, and the coordinator says how this goes on.
bool Worker::IsCutOff(const Connection& connection, const PeerLost& lost) {
  if (lost.role != Role::kCoordinator || !coordinator_->hears()) return false;
  const int32_t server = connection.peer().rank;
  int life = 0;
  {
    MutexLock lock(mutex_);
    life = state_.servers[server].lives;
  }
  LoseServer(server, life,
             Unavailable(connection.peer_name() + job_.InProcessOf(server) +
                         " is cut off: " + lost.description));
  return true;
}

// A server that ends tells why; one to which a connection has come again tells what it has.
Status Worker::OnServerMessage(Connection& connection, PayloadSink* sink) {
  ControlMessage message;
  const bool is_message =
      sink != nullptr && DecodeControl(static_cast<BufferSink*>(sink)->Take(), &message).ok();
  if (is_message && std::holds_alternative<PeerLost>(message)) {
    if (!IsCutOff(connection, std::get<PeerLost>(message))) OnControl(std::move(message));
    return OkStatus();
  }
  if (is_message && std::holds_alternative<ArrivalReport>(message)) {
    MutexLock lock(mutex_);
    return state_.watch.OnArrivals(connection.peer().rank, std::get<ArrivalReport>(message));
  }
  if (!is_message || !std::holds_alternative<ResumeAnswer>(message))
    return Internal(connection.peer_name() + " sent a message that is not understood");
  Transaction transaction(this);
  return state_.path_events.OnResumeAnswer(SourceOf(connection), std::get<ResumeAnswer>(message),
                                           transaction.effects());
}

}  // namespace byteps

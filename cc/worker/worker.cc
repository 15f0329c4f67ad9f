#include "cc/worker/worker.h"

#include <utility>

#include "cc/base/clock.h"
#include "cc/base/logging.h"
#include "cc/worker/worker_actions.h"

namespace byteps {
namespace {

constexpr double kWatchSeconds = 0.5;
// The coordinator answers a goodbye at once; a process on its way out does not wait long for a dead
// one.
constexpr int64_t kGoodbyePatienceNanos = 5 * int64_t{1000000000};
// After a failure even less: the coordinator may be what does not answer.
constexpr int64_t kGoodbyePatienceAfterFailureNanos = 1000000000;
constexpr int64_t kGoodbyeLookNanos = 100 * 1000000;

}  // namespace

Worker::Worker(const JobDescription& job, int32_t rank, Timeline* timeline,
               std::unique_ptr<Van> van)
    : job_(job),
      rank_(rank),
      local_(job.num_workers() == 1 && job.num_servers() == 0),
      keeps_results_(job.MayLoseServers()),
      timeline_(timeline),
      form_(job_),
      van_(std::move(van)),
      keys_(job_),
      queue_(job.options.flow.Credit(0), job.options.flow.CreditKeptBack()),
      link_meter_(job.TunesItself() ? std::make_unique<LinkMeter>() : nullptr),
      arrivals_(job_.num_workers(), job_.num_servers()),
      stalls_(job_, rank_, keys_, servers_, arrivals_) {}

Worker::~Worker() { Stop(); }

Status Worker::Start() {
  if (rank_ < 0 || rank_ >= job_.num_workers()) {
    return InvalidArgument("rank " + std::to_string(rank_) + " is not one of the " +
                           std::to_string(job_.num_workers()) + " workers");
  }
  if (local_) return OkStatus();
  if (job_.num_servers() == 0)
    return InvalidArgument("a job of several workers needs at least one server");
  if (van_ == nullptr) van_ = NewVan(VanOptionsOf(job_.options));
  PreparePaths();
  coordinator_ = std::make_unique<CoordinatorLink>(
      [this](ControlMessage message) { OnControl(std::move(message)); },
      [this](const Status& reason) { Fail(reason, LostPeer{Role::kCoordinator, 0}); });
  BYTEPS_RETURN_IF_ERROR(van_->Expect(1 + job_.num_servers() * job_.PathsPerServer()));
  BYTEPS_RETURN_IF_ERROR(coordinator_->Start(van_.get(), job_, Role::kWorker, rank_));
  BYTEPS_RETURN_IF_ERROR(ConnectToServers());
  watch_.Start("byteps-watch", kWatchSeconds, [this] { Watch(); });
  return OkStatus();
}

bool Worker::CoordinatorIsLost() const {
  MutexLock lock(mutex_);
  return coordinator_is_lost_;
}

Status Worker::failure() const {
  MutexLock lock(mutex_);
  return failure_;
}

std::optional<LostPeer> Worker::lost_peer() const {
  MutexLock lock(mutex_);
  return lost_peer_;
}

WorkerCounters Worker::counters() const {
  MutexLock lock(mutex_);
  WorkerCounters counters = counters_;
  counters.credit_bytes = queue_.credit_bytes();
  counters.unanswered_bytes = queue_.unanswered();
  counters.in_flight_bytes = queue_.bytes_on_the_way();
  counters.queued_parts = queue_.size();
  counters.steps = step_meter_.counters();
  if (counters.started_exchanges > counters.exchanges)
    counters.exchanging_ns += MonotonicNanos() - exchanging_since_ns_;
  counters.paths = servers_.counters();
  if (van_ != nullptr) counters.van = van_->counters();
  return counters;
}

std::vector<WorkerLag> Worker::arrival_lags() const {
  MutexLock lock(mutex_);
  return arrivals_.Lags();
}

std::shared_ptr<MemoryRegistry> Worker::memory_registry() const {
  return van_ == nullptr ? nullptr : van_->memory_registry();
}

Status Worker::Attach(const std::shared_ptr<WorkerCompanion>& companion) {
  std::vector<Relay> relayed;
  {
    MutexLock lock(mutex_);
    BYTEPS_RETURN_IF_ERROR(Refusal());
    if (companion_ != nullptr) {
      return FailedPrecondition("worker " + std::to_string(rank_) +
                                " exchanges the tensors of another GPU already: give each GPU a "
                                "worker of its own");
    }
    companion_ = companion;
    relayed.swap(relayed_);
  }
  for (const Relay& relay : relayed) companion->OnRelay(relay.from, relay.bytes);
  return OkStatus();
}

void Worker::RelayTo(int32_t worker, std::string bytes) {
  coordinator_->Send(Relay{rank_, worker, std::move(bytes)});
}

void Worker::OnRelay(const Relay& relay) {
  std::shared_ptr<WorkerCompanion> companion;
  {
    MutexLock lock(mutex_);
    companion = companion_;
    if (companion == nullptr) relayed_.push_back(relay);
  }
  if (companion != nullptr) companion->OnRelay(relay.from, relay.bytes);
}

void Worker::Stop() {
  std::shared_ptr<WorkerCompanion> companion;
  {
    MutexLock lock(mutex_);
    if (!stopping_) companion = companion_;
  }
  if (companion != nullptr) companion->OnStop();
  {
    Transaction transaction(this);
    Actions* const actions = transaction.actions();
    if (stopping_) return;
    stopping_ = true;
    FinishAll(Cancelled("tf_byteps.shutdown() was called while the tensor was in flight"), actions);
  }
  watch_.Stop();
  if (local_ || van_ == nullptr) {
    return;
  }
  // The coordinator may only be stopped: it must not take this for a good end when it goes on.
  if (coordinator_->connected() && !CoordinatorIsLost()) {
    coordinator_->Send(Goodbye{{rank_}});
    MutexLock lock(mutex_);
    const int64_t deadline_ns =
        MonotonicNanos() +
        (failure_.ok() ? kGoodbyePatienceNanos : kGoodbyePatienceAfterFailureNanos);
    while (!left_ && coordinator_->connected() && MonotonicNanos() < deadline_ns)
      goodbye_answered_.WaitFor(mutex_, kGoodbyeLookNanos);
  }
  coordinator_->Stop();
  std::vector<Reconnector*> reconnectors;
  {
    MutexLock lock(mutex_);
    reconnectors = servers_.reconnectors();
  }
  for (Reconnector* const reconnector : reconnectors) reconnector->Stop();
  van_->Stop();
}

Status Worker::Refusal() const {
  if (stopping_) return Cancelled("tf_byteps has been shut down; call tf_byteps.init() first");
  return failure_;
}

void Worker::OnControl(ControlMessage message) {
  if (const auto* relay = std::get_if<Relay>(&message)) return OnRelay(*relay);
  if (const auto* lost = std::get_if<PeerLost>(&message)) {
    {
      MutexLock lock(mutex_);
      coordinator_is_lost_ = coordinator_is_lost_ || lost->role == Role::kCoordinator;
    }
    return Fail(Unavailable(lost->description), LostPeer{lost->role, lost->rank});
  }
  Status status;
  std::string stall_text;
  {
    Transaction transaction(this);
    Actions* const actions = transaction.actions();
    if (auto* reply = std::get_if<DeclareReply>(&message)) {
      status = OnDeclareReply(std::move(*reply), actions);
    } else if (std::holds_alternative<byteps::HoldRounds>(message)) {
      HoldRounds(actions);
    } else if (auto* retune = std::get_if<Retune>(&message)) {
      status = OnRetune(std::move(*retune), actions);
    } else if (const auto* server = std::get_if<ServerLost>(&message)) {
      OnServerLost(*server, actions);
    } else if (const auto* back = std::get_if<ServerBack>(&message)) {
      status = OnServerBack(*back, actions);
    } else if (const auto* all_have = std::get_if<ResultsHeld>(&message)) {
      OnResultsHeld(*all_have, actions);
    } else if (const auto* moved = std::get_if<PartsMoved>(&message)) {
      status = OnPartsMoved(*moved, actions);
    } else if (std::holds_alternative<Goodbye>(message)) {
      left_ = true;
      goodbye_answered_.NotifyAll();
    } else if (const auto* query = std::get_if<StallQuery>(&message)) {
      actions->messages.push_back(stalls_.Answer(*query));
    } else if (const auto* notice = std::get_if<StallNotice>(&message)) {
      stall_text = stalls_.Text(*notice);
    }
  }
  if (!stall_text.empty()) {
    LogWarning(stall_text, {"stalled", {}});
    MutexLock lock(mutex_);
    stalls_.NoteLogged(MonotonicNanos());
  }
  if (!status.ok()) Fail(status);
}

void Worker::Fail(const Status& reason, const std::optional<LostPeer>& lost) {
  std::shared_ptr<WorkerCompanion> companion;
  {
    Transaction transaction(this);
    Actions* const actions = transaction.actions();
    if (!failure_.ok() || stopping_) return;
    failure_ = reason;
    lost_peer_ = lost;
    LogError(reason.message(), {"job_failed", {}});
    FinishAll(reason, actions);
    companion = companion_;
  }
  if (companion != nullptr) companion->OnFailure(reason);
}

}  // namespace byteps

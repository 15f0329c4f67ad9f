#include "cc/worker/worker.h"

#include <utility>

#include "cc/base/clock.h"
#include "cc/worker/stall_signal.h"
#include "cc/worker/worker_transaction.h"

namespace byteps {
namespace {

constexpr double kWatchSeconds = 0.5;
// The coordinator answers a goodbye at once; a process that leaves does not wait long for a dead
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
      timeline_(timeline),
      row_choices_(job_.HasLinks()),
      form_(job_),
      van_(std::move(van)),
      state_(
          job_, rank_,
          {local_, job_.MayLoseServers(),
           [epoch = job_.epoch](const TableEntry& entry, std::shared_ptr<TensorFeedback>* feedback,
                                std::unique_ptr<Residual>* restored) {
             RenewFeedback(entry, epoch, feedback, restored);
           }}) {}

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
  watch_.Start("byteps-watch", kWatchSeconds, [this](int64_t) { Watch(); });
  MutexLock lock(mutex_);
  has_started_ = true;
  return OkStatus();
}

Status Worker::failure() const {
  MutexLock lock(mutex_);
  return state_.lifecycle.failure();
}

std::optional<LostPeer> Worker::lost_peer() const {
  MutexLock lock(mutex_);
  return state_.lifecycle.lost_peer();
}

WorkerCounters Worker::counters() const {
  MutexLock lock(mutex_);
  WorkerCounters counters;
  static_cast<StateCounters&>(counters) = state_.counters(MonotonicNanos());
  if (van_ != nullptr) counters.van = van_->counters();
  return counters;
}

std::vector<WorkerLag> Worker::arrival_lags() const {
  MutexLock lock(mutex_);
  return state_.watch.Lags();
}

std::shared_ptr<MemoryRegistry> Worker::memory_registry() const {
  return van_ == nullptr ? nullptr : van_->memory_registry();
}

Status Worker::Attach(const std::shared_ptr<WorkerListener>& listener) {
  std::vector<Relay> relayed;
  std::map<uint64_t, Effects::GivenUp> given_up;
  {
    MutexLock lock(mutex_);
    BYTEPS_RETURN_IF_ERROR(state_.lifecycle.Refusal());
    if (listener_ != nullptr) {
      return FailedPrecondition("worker " + std::to_string(rank_) +
                                " exchanges the tensors of another GPU already: give each GPU a "
                                "worker of its own");
    }
    listener_ = listener;
    relayed.swap(relayed_);
    given_up.swap(given_up_);
  }
  for (const Relay& relay : relayed) listener->OnRelay(relay.from, relay.bytes);
  for (const auto& [key, round] : given_up) listener->OnGivenUp(key, round.round, round.reason);
  return OkStatus();
}

void Worker::RelayTo(int32_t worker, std::string bytes) {
  coordinator_->Send(Relay{rank_, worker, std::move(bytes)});
}

void Worker::Stop(const std::string& lost) {
  std::shared_ptr<WorkerListener> listener;
  {
    MutexLock lock(mutex_);
    if (!state_.lifecycle.is_stopped()) listener = listener_;
  }
  if (listener != nullptr) listener->OnStop();
  {
    Transaction transaction(this);
    if (!state_.Stop(transaction.effects())) return;
  }
  watch_.Stop();
  if (local_ || van_ == nullptr) return;
  SayGoodbye(lost);
  coordinator_->Stop();
  // Waits for running attempts to connect.
  for (const auto& paths : reconnectors_) {
    for (const auto& reconnector : paths) reconnector->Stop();
  }
  van_->Stop();
}

// The coordinator may only be stopped: it must not take this for a good end when it goes on. Nor
// that of a worker which did not get to the servers: the others, who wait for it, have lost it.
void Worker::SayGoodbye(const std::string& lost) {
  {
    MutexLock lock(mutex_);
    const bool has_come_in_vain = !has_started_ && state_.lifecycle.failure().ok();
    if (coordinator_is_lost_ || has_come_in_vain) return;
  }
  if (!coordinator_->connected()) return;
  // Before the goodbye: who waits for this worker must not take that for the reason.
  if (!lost.empty()) coordinator_->Send(PeerLost{Role::kWorker, rank_, lost});
  coordinator_->Send(Goodbye{{rank_}});
  MutexLock lock(mutex_);
  const bool is_well = state_.lifecycle.failure().ok();
  const int64_t deadline_ns =
      MonotonicNanos() + (is_well ? kGoodbyePatienceNanos : kGoodbyePatienceAfterFailureNanos);
  while (!left_ && coordinator_->connected() && MonotonicNanos() < deadline_ns)
    heard_.WaitFor(mutex_, kGoodbyeLookNanos);
}

void Worker::Watch() {
  Status status;
  {
    const bool is_asked_for = StallSignal::Take();
    Transaction transaction(this);
    status = state_.OnTick(is_asked_for, transaction.effects());
  }
  if (!status.ok()) Fail(status);
}

}  // namespace byteps

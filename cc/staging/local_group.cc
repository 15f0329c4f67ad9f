#include "cc/staging/local_group.h"

#include <utility>

#include "cc/base/clock.h"
#include "cc/base/logging.h"
#include "cc/staging/device_connection.h"
#include "cc/staging/local_group_transaction.h"

namespace byteps {
namespace {

// How long a worker that leaves waits for the others of its host.
constexpr int64_t kLeavePatienceNanos = 5'000'000'000;

// What is sent from the pool's memory needs no copy then. It outlives the worker, whose registry
// ends with the worker's Van.
void RegisterPool(const Worker& worker, PinnedPool* pool) {
  const std::weak_ptr<MemoryRegistry> weak = worker.memory_registry();
  PinnedWatcher watcher;
  watcher.allocated = [weak](void* address, size_t bytes) {
    if (const auto registry = weak.lock()) registry->Add(address, bytes);
  };
  watcher.about_to_free = [weak](void* address) {
    if (const auto registry = weak.lock()) registry->Remove(address);
  };
  pool->Watch(std::move(watcher));
}

}  // namespace

LocalGroup::LocalGroup(Worker* worker, std::shared_ptr<RankDevice> device)
    : worker_(worker),
      device_(std::move(device)),
      place_(worker->job(), worker->rank()),
      steps_(this),
      copies_(device_.get(), &steps_),
      results_(worker, device_.get(), place_, this, &steps_, &copies_, &launcher_),
      stages_(worker, device_.get(), place_, this, &steps_, &results_, &launcher_),
      one_host_stages_(worker, device_.get(), place_, this, &steps_),
      follower_([this](const LaunchEntry& entry) { return Follow(entry); }),
      state_(place_.alone()) {}

Status LocalGroup::Create(Worker* worker, std::shared_ptr<RankDevice> device,
                          std::shared_ptr<LocalGroup>* group, std::unique_ptr<Van> link) {
  std::shared_ptr<LocalGroup> created(new LocalGroup(worker, std::move(device)));
  RegisterPool(*worker, &created->device_->pinned_pool());
  BYTEPS_RETURN_IF_ERROR(created->Start(std::move(link)));
  *group = created;
  return worker->Attach(std::move(created));
}

Status LocalGroup::Start(std::unique_ptr<Van> link) {
  if (place_.alone()) return OkStatus();
  HostChannel::Handler* const handler = this;
  channel_ = std::make_unique<HostChannel>(worker_, place_, handler, std::move(link));
  GroupInvitation invitation;
  if (place_.local_rank == 0) {
    BYTEPS_RETURN_IF_ERROR(device_->NewGroup(&invitation.id));
    invitation.results = results_.NewShared(invitation.id);
  }
  return channel_->Start(invitation);
}

LocalGroup::~LocalGroup() {
  {
    MutexLock lock(mutex_);
    state_.phase.Go();
  }
  if (channel_ != nullptr) channel_->End();
  StopThreads();
  device_.reset();  // its last callbacks come before the end of what they use
}

void LocalGroup::StopThreads() {
  stages_.StopEncoding();
  launcher_.Stop();
  stages_.StopDecoding();
  copies_.Stop();
}

void LocalGroup::OnRelay(int32_t from, const std::string& bytes) {
  if (!place_.alone() && from == place_.workers[0]) channel_->OnPort(bytes);
}

Status LocalGroup::OnInvitation(const GroupInvitation& invitation) {
  BYTEPS_RETURN_IF_ERROR(
      ConnectDevice(device_, invitation.id, place_, [this] { return MayConnect(); }));
  const bool shares_results = results_.OpenShared(invitation);
  MutexLock lock(mutex_);
  state_.phase.Connect(shares_results);
  return OkStatus();
}

Status LocalGroup::MayConnect() {
  MutexLock lock(mutex_);
  return state_.phase.is_gone() ? Cancelled("the worker leaves") : state_.phase.failure();
}

Status LocalGroup::OnSlice(const LogSlice& slice) {
  BYTEPS_RETURN_IF_ERROR(follower_.Receive(slice));
  // All ranks get the same slices, so that they launch the same together.
  one_host_stages_.Start(launches_.TakeTogether());
  return OkStatus();
}

Status LocalGroup::Follow(const LaunchEntry& entry) {
  TensorPointer tensor;
  {
    Transaction transaction(this);
    BYTEPS_RETURN_IF_ERROR(state_.phase.failure());
    if (entry.kind == LaunchEntry::Kind::kEnd) {
      state_.phase.EndLog();
      transaction.effects()->wakes_waiters = true;
      return OkStatus();
    }
    tensor = state_.tensors.Find(entry);
  }
  Launch launch;
  BYTEPS_RETURN_IF_ERROR(launches_.Next(entry, tensor, &launch));
  one_host_stages_.Start(launch.together);
  switch (launch.kind) {
    case Launch::Kind::kNothing: break;
    case Launch::Kind::kReduce:
    case Launch::Kind::kReduceForAll:
      stages_.Reduce(tensor, entry.part, launch.kind == Launch::Kind::kReduceForAll);
      break;
    case Launch::Kind::kBroadcast: stages_.Broadcast(tensor, entry.part); break;
    case Launch::Kind::kExchange: one_host_stages_.Start({tensor}); break;
    case Launch::Kind::kGather: one_host_stages_.Gather(tensor, entry.rows); break;
    case Launch::Kind::kFail: FailTensor(tensor, launch.reason); break;
  }
  return OkStatus();
}

void LocalGroup::OnEndPublished() {
  MutexLock lock(mutex_);
  state_.phase.PublishEnd();
}

void LocalGroup::OnRankLost(int32_t local_rank, const Status& reason) {
  Transaction transaction(this);
  transaction.effects()->wakes_waiters = true;
  if (state_.phase.OnLost()) return;
  const Status lost =
      Unavailable("worker " + std::to_string(place_.workers[local_rank]) +
                  " of this host has left its group of GPUs (" + reason.message() + ")");
  state_.tensors.FailGroup(lost, transaction.effects());
}

template <class Condition>
bool LocalGroup::WaitUntil(const Condition& is_reached) {
  const int64_t until_ns = MonotonicNanos() + kLeavePatienceNanos;
  MutexLock lock(mutex_);
  while (!is_reached(state_)) {
    const int64_t left_ns = until_ns - MonotonicNanos();
    if (left_ns <= 0) return false;
    changed_.WaitFor(mutex_, left_ns);
  }
  return true;
}

// The others may still be at work with what this rank has done.
bool LocalGroup::LeaveInOrder() {
  if (place_.alone()) return true;
  LaunchReport report;
  report.kind = LaunchReport::Kind::kLeaving;
  Report(std::move(report));
  bool has_log_ended = false;
  WaitUntil([&](const GroupState& state) {
    has_log_ended = state.phase.has_log_ended();
    return has_log_ended || !state.phase.failure().ok();
  });
  return has_log_ended;
}

void LocalGroup::OnStop() {
  bool in_order = false;
  {
    MutexLock lock(mutex_);
    if (!state_.phase.Leave()) return;
    in_order = state_.MayLeaveInOrder();
  }
  if (in_order && LeaveInOrder()) {
    const Status finished = device_->Finish();
    if (!finished.ok()) LogWarning(finished.message());
    // Local rank 0 is the last to hang up, so that all others have heard of the end.
    if (place_.local_rank == 0) {
      const int32_t others = place_.local_size - 1;
      WaitUntil([&](const GroupState& state) { return state.phase.lost_count() == others; });
    }
  }
  Fail(Cancelled("tf_byteps.shutdown() was called while the tensor was in flight"));
  // What the device was doing with the tensors' memory ends.
  WaitUntil([](const GroupState& state) { return state.tensors.empty(); });
  StopThreads();
  if (channel_ != nullptr) channel_->Stop();
}

}  // namespace byteps

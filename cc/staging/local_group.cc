#include "cc/staging/local_group.h"

#include <charconv>
#include <chrono>
#include <utility>

#include "cc/base/clock.h"
#include "cc/base/logging.h"

namespace byteps {
namespace {

// How long a worker that leaves waits for the others of its host.
constexpr auto kLeavePatience = std::chrono::seconds(5);

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

// Equal for tensors that can be combined with each other.
uint64_t Agreement(const TensorDescription& tensor) { return KeyOfName(tensor.ToString()); }

}  // namespace

LocalGroup::LocalGroup(Worker* worker, std::shared_ptr<RankDevice> device)
    : worker_(worker),
      device_(std::move(device)),
      place_(worker->job(), worker->rank()),
      follower_([this](const LaunchEntry& entry) { return Follow(entry); }),
      // As many as move what they have encoded.
      encoders_("byteps-encode", worker->job().options.network.io_threads) {}

Status LocalGroup::Create(Worker* worker, std::shared_ptr<RankDevice> device,
                          std::shared_ptr<LocalGroup>* group) {
  std::shared_ptr<LocalGroup> created(new LocalGroup(worker, std::move(device)));
  RegisterPool(*worker, &created->device_->pinned_pool());
  BYTEPS_RETURN_IF_ERROR(created->Start());
  *group = created;
  return worker->Attach(std::move(created));
}

Status LocalGroup::Start() {
  if (alone()) {
    connected_ = true;
    return OkStatus();
  }
  LocalLink::Options options;
  options.job = &worker_->job();
  options.workers = place_.workers;
  options.local_rank = place_.local_rank;
  options.on_message = [this](LocalMessage message) { return Receive(std::move(message)); };
  options.on_lost = [this](int32_t rank, const Status& reason) { OnLost(rank, reason); };
  link_ = std::make_unique<LocalLink>(std::move(options));
  if (place_.local_rank == 0) {
    GroupInvitation invitation;
    BYTEPS_RETURN_IF_ERROR(device_->NewGroup(&invitation.id));
    invitation.results = NewSharedResults(invitation.id);
    Endpoint endpoint;
    BYTEPS_RETURN_IF_ERROR(link_->Listen(&endpoint));
    sequencer_ = std::make_unique<Sequencer>(
        place_.local_size, place_.results_from, [this](const LogSlice& slice) { Publish(slice); },
        [this](const Status& reason) { Fail(reason); });
    inbox_.push_back(invitation);
    for (int32_t rank = 1; rank < place_.local_size; ++rank) {
      link_->Send(rank, invitation);
      worker_->RelayTo(place_.workers[rank], std::to_string(endpoint.port));
    }
  }
  thread_ = std::thread([this] {
    SetThreadName("byteps-group");
    Run();
  });
  return OkStatus();
}

LocalGroup::~LocalGroup() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  sequencer_.reset();
  if (link_ != nullptr) link_->Stop();
  if (thread_.joinable()) thread_.join();
  encoders_.Stop();
  launcher_.Stop();
  decoder_.Stop();
  event_recorder_.Stop();
  device_.reset();  // its last callbacks come before the end of what they use
}

void LocalGroup::OnRelay(int32_t from, const std::string& bytes) {
  if (alone() || from != place_.workers[0]) return;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    rank_zero_port_ = bytes;
  }
  changed_.notify_all();
}

Status LocalGroup::Receive(LocalMessage message) {
  const bool is_report = std::holds_alternative<std::vector<LaunchReport>>(message);
  if (is_report != (place_.local_rank == 0)) {
    return InvalidArgument("local rank " + std::to_string(place_.local_rank) +
                           " got a message that is not for it");
  }
  if (is_report) {
    sequencer_->Add(std::move(std::get<std::vector<LaunchReport>>(message)));
    return OkStatus();
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    inbox_.push_back(std::move(message));
  }
  changed_.notify_all();
  return OkStatus();
}

void LocalGroup::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (place_.local_rank > 0) {
    changed_.wait(lock, [this] { return stopping_ || !rank_zero_port_.empty(); });
    if (stopping_) return;
    const std::string port = rank_zero_port_;
    lock.unlock();
    const Status status = ConnectToRankZero(port);
    if (!status.ok()) Fail(status);
    lock.lock();
  }
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !inbox_.empty(); });
    if (stopping_) return;
    const LocalMessage message = std::move(inbox_.front());
    inbox_.pop_front();
    lock.unlock();
    const Status status = Handle(message);
    if (!status.ok()) Fail(status);
    lock.lock();
  }
}

Status LocalGroup::ConnectToRankZero(const std::string& port) {
  Endpoint endpoint;
  endpoint.host = "127.0.0.1";
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), endpoint.port);
  if (error != std::errc() || end != port.data() + port.size())
    return Internal("local rank 0 listens at port \"" + port + "\", which is none");
  return link_->Connect(endpoint);
}

Status LocalGroup::Handle(const LocalMessage& message) {
  if (const auto* invitation = std::get_if<GroupInvitation>(&message)) return Connect(*invitation);
  BYTEPS_RETURN_IF_ERROR(follower_.Receive(std::get<LogSlice>(message)));
  // All ranks get the same slices, so that they launch the same together.
  StartExchanges(std::exchange(together_, {}));
  return OkStatus();
}

// NCCL waits for all ranks without a limit. Should one of them be lost meanwhile, the attempt is
// left behind, with its thread.
Status LocalGroup::Connect(const GroupInvitation& invitation) {
  struct Attempt {
    std::mutex mutex;
    std::condition_variable changed;
    bool ended = false;
    Status status;
  };
  const auto attempt = std::make_shared<Attempt>();
  std::thread([attempt, device = device_, id = invitation.id, size = place_.local_size,
               rank = place_.local_rank] {
    SetThreadName("byteps-connect");
    const Status status = device->Connect(id, size, rank);
    std::lock_guard<std::mutex> lock(attempt->mutex);
    attempt->status = status;
    attempt->ended = true;
    attempt->changed.notify_all();
  }).detach();
  std::unique_lock<std::mutex> lock(attempt->mutex);
  while (!attempt->changed.wait_for(lock, std::chrono::milliseconds(100),
                                    [&] { return attempt->ended; })) {
    std::lock_guard<std::mutex> group_lock(mutex_);
    if (stopping_) return Cancelled("the worker leaves");
    BYTEPS_RETURN_IF_ERROR(failure_);
  }
  BYTEPS_RETURN_IF_ERROR(attempt->status);
  const bool shares_results = OpenSharedResults(invitation);
  std::lock_guard<std::mutex> group_lock(mutex_);
  connected_ = true;
  shares_results_ = shares_results;
  return OkStatus();
}

Status LocalGroup::Follow(const LaunchEntry& entry) {
  TensorPointer tensor;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    BYTEPS_RETURN_IF_ERROR(failure_);
    if (entry.kind == LaunchEntry::Kind::kEnd) {
      log_ended_ = true;
      changed_.notify_all();
      return OkStatus();
    }
    const auto it = live_.find(entry.key);
    if (it != live_.end() && it->second->exchange->round == entry.round) tensor = it->second;
  }
  const bool is_failure = entry.kind == LaunchEntry::Kind::kFail;
  if (is_failure) StartExchanges(std::exchange(together_, {}));
  if (tensor == nullptr) {
    // What has failed may have ended here before, or not begun.
    return is_failure ? OkStatus() : Internal(entry.ToString() + ": it is not ready here");
  }
  if (is_failure) {
    const std::string here = "; here it is " + tensor->exchange->request.tensor.ToString();
    FailTensor(tensor, Status(entry.reason.code(),
                              tensor->exchange->Name() + ": " + entry.reason.message() + here));
    return OkStatus();
  }
  if (entry.part >= tensor->part_count())
    return Internal(entry.ToString() + ": it has no such part here");
  const bool for_all = entry.kind == LaunchEntry::Kind::kReduceForAll;
  if (for_all || entry.kind == LaunchEntry::Kind::kReduce) StartReduce(tensor, entry.part, for_all);
  if (entry.kind == LaunchEntry::Kind::kBroadcast) StartBroadcast(tensor, entry.part);
  if (entry.kind == LaunchEntry::Kind::kExchange) {
    const ExchangeKind kind = tensor->gpu.tensor.kind;
    if (kind != ExchangeKind::kGather && kind != ExchangeKind::kBroadcast) {
      together_.push_back(tensor);
      return OkStatus();
    }
    StartExchanges(std::exchange(together_, {}));
    kind == ExchangeKind::kGather ? StartGather(tensor, entry.rows) : StartExchanges({tensor});
  }
  return OkStatus();
}

void LocalGroup::ReportTensor(LaunchReport::Kind kind, const Exchange& exchange, uint32_t part,
                              const Status& reason, bool takes_shared) {
  LaunchReport report;
  report.kind = kind;
  report.key = exchange.entry->key;
  report.round = exchange.round;
  report.part = part;
  report.part_count = static_cast<uint32_t>(exchange.entry->parts.size());
  report.rows = exchange.request.gather_rows;
  report.agreement = Agreement(exchange.request.tensor);
  report.reason = reason;
  report.takes_shared = takes_shared;
  Report(std::move(report));
}

// The others of this host have nothing at servers that could tell them.
void LocalGroup::OnGivenUp(uint64_t key, uint64_t round, const Status& reason) {
  if (alone()) return;
  LaunchReport report;
  report.kind = LaunchReport::Kind::kFailed;
  report.key = key;
  report.round = round;
  report.reason = Status(reason.code(), "worker " + std::to_string(worker_->rank()) +
                                            " has given it up: " + reason.message());
  Report(std::move(report));
}

void LocalGroup::Report(LaunchReport report) {
  report.local_rank = place_.local_rank;
  Hold();
  {
    std::lock_guard<std::mutex> lock(held_mutex_);
    held_reports_.push_back(std::move(report));
  }
  Release();
}

void LocalGroup::Hold() {
  std::lock_guard<std::mutex> lock(held_mutex_);
  ++holding_;
}

void LocalGroup::Release() {
  std::vector<TensorPointer> tensors;
  {
    std::lock_guard<std::mutex> lock(held_mutex_);
    if (--holding_ > 0) return;
    tensors.swap(held_tensors_);
    std::vector<LaunchReport> reports = std::exchange(held_reports_, {});
    // Sent with the lock: a later report of a tensor must not overtake an earlier one.
    if (!reports.empty()) {
      sequencer_ != nullptr ? sequencer_->Add(std::move(reports))
                            : link_->Send(0, std::move(reports));
    }
  }
  StartExchanges(tensors);
}

void LocalGroup::Publish(const LogSlice& slice) {
  if (slice.entries.back().kind == LaunchEntry::Kind::kEnd) {
    // Another rank may read it, and hang up, before this one does.
    std::lock_guard<std::mutex> lock(mutex_);
    end_published_ = true;
  }
  for (int32_t rank = 1; rank < place_.local_size; ++rank) link_->Send(rank, slice);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    inbox_.push_back(slice);
  }
  changed_.notify_all();
}

void LocalGroup::OnLost(int32_t local_rank, const Status& reason) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    ++lost_count_;
    changed_.notify_all();
    if (log_ended_ || end_published_) return;
  }
  Fail(Unavailable("worker " + std::to_string(place_.workers[local_rank]) +
                   " of this host has left its group of GPUs (" + reason.message() + ")"));
}

Status LocalGroup::failure() {
  std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

void LocalGroup::Fail(const Status& reason) {
  std::vector<TensorPointer> ended;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = reason;
    for (const auto& [key, tensor] : live_) ended.push_back(tensor);
  }
  changed_.notify_all();
  // The others wait for this rank's collectives: they must learn that there will be none.
  if (link_ != nullptr) link_->Close(reason);
  for (const TensorPointer& tensor : ended) {
    FailTensor(tensor, Status(reason.code(), tensor->exchange->Name() + ": " + reason.message()));
  }
  // NCCL waits for the GPU, whose streams go on now.
  device_->Abort(reason);
}

void LocalGroup::OnStop() {
  bool in_order = false;
  {
    std::unique_lock<std::mutex> lock(mutex_);
    if (leaving_) return;
    leaving_ = true;
    in_order = failure_.ok() && live_.empty();
  }
  if (in_order && !alone()) {
    LaunchReport report;
    report.kind = LaunchReport::Kind::kLeaving;
    Report(std::move(report));
    // The others may still be at work with what this rank has done.
    std::unique_lock<std::mutex> lock(mutex_);
    in_order = changed_.wait_for(lock, kLeavePatience, [this] {
      return log_ended_ || !failure_.ok();
    }) && log_ended_;
  }
  if (in_order) {
    const Status finished = device_->Finish();
    if (!finished.ok()) LogWarning(finished.message());
    // Local rank 0 is the last to hang up, so that all others have heard of the end.
    std::unique_lock<std::mutex> lock(mutex_);
    if (place_.local_rank == 0) {
      changed_.wait_for(lock, kLeavePatience,
                        [this] { return lost_count_ == place_.local_size - 1; });
    }
  }
  Fail(Cancelled("tf_byteps.shutdown() was called while the tensor was in flight"));
  {
    // What the device was doing with the tensors' memory ends.
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, kLeavePatience, [this] { return live_.empty(); });
  }
  encoders_.Stop();
  launcher_.Stop();
  decoder_.Stop();
  event_recorder_.Stop();
  if (link_ != nullptr) link_->Stop();
}

}  // namespace byteps

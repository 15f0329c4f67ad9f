#include "cc/gpu/local_group.h"

#include <utility>

#include "cc/base/clock.h"

namespace byteps {
namespace {

// Equal for tensors that can be combined with each other.
uint64_t Agreement(const TensorDescription& tensor) {
  return KeyOfName(tensor.ToString() + (tensor.average ? " average" : "") + " " +
                   std::to_string(tensor.root_rank));
}

}  // namespace

LocalGroup::LocalGroup(std::shared_ptr<GpuDevice> device, int32_t local_rank, int32_t local_size,
                       SendFunction send)
    : device_(std::move(device)),
      local_rank_(local_rank),
      local_size_(local_size),
      send_(std::move(send)),
      follower_([this](const LaunchEntry& entry) { return Launch(entry); }) {}

Status LocalGroup::Create(std::shared_ptr<GpuDevice> device, int32_t local_rank, int32_t local_size,
                          SendFunction send, std::unique_ptr<LocalGroup>* group) {
  std::unique_ptr<LocalGroup> created(
      new LocalGroup(device, local_rank, local_size, std::move(send)));
  BYTEPS_RETURN_IF_ERROR(StreamQueue::Create(device, "byteps-nccl", &created->queue_));
  LocalGroup* const raw = created.get();
  if (local_rank == 0) {
    NcclUniqueId id;
    BYTEPS_RETURN_IF_ERROR(NcclCommunicator::NewGroup(&id));
    const auto to_all = [raw](const LocalMessage& message) {
      for (int32_t rank = 0; rank < raw->local_size_; ++rank) raw->send_(rank, message);
    };
    raw->sequencer_ =
        std::make_unique<Sequencer>(local_size, ResultsFrom::kCollective, to_all,
                                    [raw](const Status& reason) { raw->Fail(reason); });
    to_all(id);
  }
  raw->thread_ = std::thread([raw] {
    SetThreadName("byteps-group");
    raw->Run();
  });
  *group = std::move(created);
  return OkStatus();
}

LocalGroup::~LocalGroup() {
  sequencer_.reset();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
  queue_.reset();
  Status failure;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    failure = failure_;
  }
  // In order if all went well; what has failed is aborted.
  if (failure.ok() && communicator_ != nullptr) failure = communicator_->Finish();
  Fail(Cancelled("the worker leaves its host's group of GPUs"));
}

void LocalGroup::Receive(LocalMessage message) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    inbox_.push_back(std::move(message));
  }
  changed_.notify_all();
}

void LocalGroup::Enqueue(LocalExchange exchange) {
  const uint64_t key = KeyOfName(exchange.tensor.name);
  LaunchReport report;
  report.local_rank = local_rank_;
  std::unique_ptr<CudaEvent> ready;
  Status status = queue_->Mark(exchange.stream, &ready);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (status.ok()) status = failure_;
    if (status.ok() && pending_.count(key) != 0) {
      status = FailedPrecondition("tensor \"" + exchange.tensor.name +
                                  "\" is on its way already: two tensors in flight need two names");
    }
    if (status.ok()) {
      report.parts.push_back({key, 0, rounds_[key]++, Agreement(exchange.tensor)});
      pending_.emplace(key, Pending{std::move(exchange), std::move(ready)});
    }
  }
  status.ok() ? send_(0, report) : exchange.done(status);
}

void LocalGroup::Fail(const Status& reason) {
  std::unordered_map<uint64_t, Pending> ended;
  std::unique_ptr<NcclCommunicator> aborted;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = reason;
    ended.swap(pending_);
    aborted.swap(communicator_);
  }
  for (auto& [key, pending] : ended) pending.exchange.done(reason);
}

void LocalGroup::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !inbox_.empty(); });
    if (stopping_) return;
    const LocalMessage message = std::move(inbox_.front());
    inbox_.pop_front();
    lock.unlock();
    Handle(message);
    lock.lock();
  }
}

void LocalGroup::Handle(const LocalMessage& message) {
  Status status;
  if (const auto* id = std::get_if<NcclUniqueId>(&message)) {
    status = Connect(*id);
  } else if (const auto* slice = std::get_if<LogSlice>(&message)) {
    status = follower_.Receive(*slice);
  } else if (sequencer_ != nullptr) {
    sequencer_->Add(std::get<LaunchReport>(message));
  } else {
    status = Internal("local rank " + std::to_string(local_rank_) + " got a report for rank 0");
  }
  if (!status.ok()) Fail(status);
}

Status LocalGroup::Connect(const NcclUniqueId& id) {
  std::unique_ptr<NcclCommunicator> communicator;
  BYTEPS_RETURN_IF_ERROR(
      NcclCommunicator::Connect(device_, id, local_size_, local_rank_, &communicator));
  std::lock_guard<std::mutex> lock(mutex_);
  if (failure_.ok()) communicator_ = std::move(communicator);
  return failure_;
}

Status LocalGroup::Launch(const LaunchEntry& entry) {
  // Locked throughout: the communicator must not be aborted in the middle of a launch.
  std::unique_lock<std::mutex> lock(mutex_);
  if (!failure_.ok()) return failure_;
  const auto it = pending_.find(entry.part.key);
  if (it == pending_.end()) return Internal(entry.ToString() + ": it is not ready here");
  Pending pending = std::move(it->second);
  pending_.erase(it);
  const auto exchange = std::make_shared<LocalExchange>(std::move(pending.exchange));
  if (entry.kind == LaunchEntry::Kind::kRefuse) {
    lock.unlock();
    exchange->done(FailedPrecondition("the workers of this host disagree about tensor \"" +
                                      exchange->tensor.name + "\": here it is " +
                                      exchange->tensor.ToString()));
    return OkStatus();
  }
  const Status status = queue_->Add(
      std::move(pending.ready),
      [&](CudaStreamHandle stream) { return StartCollective(*exchange, stream); },
      [this, exchange](const Status& result) {
        Status failure;
        {
          // An aborted collective ends, too.
          std::lock_guard<std::mutex> failure_lock(mutex_);
          failure = failure_;
        }
        exchange->done(failure.ok() ? result : failure);
      });
  lock.unlock();
  if (!status.ok()) exchange->done(status);
  return status;
}

Status LocalGroup::StartCollective(const LocalExchange& exchange, CudaStreamHandle stream) {
  const TensorDescription& tensor = exchange.tensor;
  const size_t count = tensor.ElementCount();
  NcclOperation operation = tensor.average ? NcclOperation::kAverage : NcclOperation::kSum;
  switch (tensor.kind) {
    case ExchangeKind::kBroadcast:
      return communicator_->Broadcast(exchange.input, exchange.output, count, tensor.dtype,
                                      tensor.root_rank, stream);
    case ExchangeKind::kGather:
      return InvalidArgument("tensor \"" + tensor.name + "\": rows are not gathered by NCCL");
    case ExchangeKind::kMin:
      operation = NcclOperation::kMin;
      break;
    case ExchangeKind::kMax:
      operation = NcclOperation::kMax;
      break;
    case ExchangeKind::kSum:
      break;
  }
  return communicator_->AllReduce(exchange.input, exchange.output, count, tensor.dtype, operation,
                                  stream);
}

}  // namespace byteps

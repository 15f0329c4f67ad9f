// What happens to a tensor between Enqueue and its end.
#include <optional>
#include <utility>

#include "cc/base/members.h"
#include "cc/staging/local_group_transaction.h"

namespace byteps {

void LocalGroup::Enqueue(CudaStreamHandle stream, std::vector<DeviceRequest> together) {
  // Before the inputs: exchanges of the same names may have to end first.
  copies_.Record(stream);
  std::vector<TensorPointer> tensors;
  Hold();
  for (DeviceRequest& request : together) {
    if (TensorPointer tensor = NewTensor(stream, std::move(request)))
      tensors.push_back(std::move(tensor));
  }
  const Status status = WhenComputed(stream, tensors);
  for (const TensorPointer& tensor : tensors) {
    if (status.ok()) {
      PlaceInTurn(tensor);
      continue;
    }
    Transaction transaction(this);
    state_.tensors.Finish(tensor, status, transaction.effects());
  }
  Release();
}

TensorPointer LocalGroup::NewTensor(CudaStreamHandle stream, DeviceRequest request) {
  Status status;
  bool shares_results = false;
  {
    MutexLock lock(mutex_);
    status = state_.phase.failure();
    shares_results = state_.phase.shares_results();
  }
  if (status.ok() && !CanExchange(request.request.tensor)) {
    status = InvalidArgument("tensor \"" + request.request.tensor.name +
                             "\": the GPUs of several hosts do not gather rows");
  }
  if (status.ok() && place_.shares_host && !Members::Of(request.request.tensor.name).are_all()) {
    status = InvalidArgument("tensor \"" + request.request.tensor.name +
                             "\": GPUs that share a host reduce together, and a process set may "
                             "have some of them only: exchange it outside of what XLA compiles, "
                             "which goes through host memory");
  }
  if (!status.ok()) {
    request.request.done(status);
    return nullptr;
  }
  auto tensor = std::make_shared<StagedTensor>();
  tensor->gpu = std::move(request.request);
  tensor->gpu.training = worker_->training();
  tensor->stream = stream;
  if (StreamCanWait(tensor->gpu.tensor, shares_results))
    tensor->on_submitted = std::move(request.on_submitted);
  return tensor;
}

bool LocalGroup::StreamCanWait(const TensorDescription& tensor, bool shares_results) {
  if (tensor.kind == ExchangeKind::kGather) return false;
  if (place_.is_one_host()) return true;
  if (tensor.kind == ExchangeKind::kBroadcast || tensor.ElementCount() == 0) return false;
  return place_.alone() ? device_->StreamsWaitForHost() : shares_results;
}

// Those whose caller's stream waits by itself only get an event of it.
Status LocalGroup::WhenComputed(CudaStreamHandle stream,
                                const std::vector<TensorPointer>& tensors) {
  DeviceEvent event;
  std::vector<TensorPointer> awaited;
  for (const TensorPointer& tensor : tensors) {
    if (tensor->on_submitted == nullptr) {
      awaited.push_back(tensor);
      continue;
    }
    if (event == nullptr) BYTEPS_RETURN_IF_ERROR(device_->RecordEvent(stream, &event));
    tensor->input_ready = event;
    tensor->NoteComputed();
  }
  if (awaited.empty()) return OkStatus();
  return device_->WhenComputed(stream, [this, awaited](const Status& result) {
    Hold();
    for (const TensorPointer& tensor : awaited) OnComputed(tensor, result);
    Release();
  });
}

void LocalGroup::OnComputed(const TensorPointer& tensor, const Status& status) {
  // Without its device no rank can count on this one any more.
  if (!status.ok()) return Fail(status);
  Transaction transaction(this);
  state_.tensors.OnComputed(tensor, transaction.effects());
}

bool LocalGroup::GivesUpInTurn(const std::string& name, const std::string& reason) {
  {
    MutexLock lock(mutex_);
    if (!state_.turns.AddGivenUp(name, reason)) return false;
  }
  ContinuePlacing();
  return true;
}

void LocalGroup::PlaceInTurn(const TensorPointer& tensor) {
  if (tensor->on_submitted == nullptr) return Place(tensor);
  {
    MutexLock lock(mutex_);
    state_.turns.Add(tensor);
  }
  ContinuePlacing();
}

// On one host, those that end or begin together are placed together. Otherwise to place a tensor
// starts its copies, for which neither who puts a program on the GPU nor who sees copies end should
// take the time.
void LocalGroup::ContinuePlacing() {
  {
    MutexLock lock(mutex_);
    if (!state_.turns.has_waiting()) return;
  }
  if (place_.is_one_host()) return PlaceWaiting();
  launcher_.Add([this] { PlaceWaiting(); });
}

void LocalGroup::PlaceWaiting() {
  MutexLock lock(mutex_);
  if (!state_.turns.Begin()) return;
  while (const std::optional<Turn> next = state_.turns.Next()) {
    lock.Unlock();
    if (next->tensor != nullptr)
      Place(next->tensor);
    else
      worker_->GiveUpRoundNow(next->name, next->reason);
    lock.Lock();
  }
}

void LocalGroup::Place(const TensorPointer& tensor) {
  PartedExchangeRequest by_parts;
  by_parts.tensor = tensor->gpu.tensor;
  by_parts.tensor.per_host = place_.shares_host && by_parts.tensor.kind != ExchangeKind::kGather;
  by_parts.gather_rows = tensor->gpu.gather_rows;
  by_parts.priority = tensor->gpu.priority;
  // When servers' results come is seen here.
  by_parts.is_awaited_elsewhere = tensor->on_submitted != nullptr && place_.is_one_host();
  by_parts.training = tensor->gpu.training;
  by_parts.placed = [this, tensor](const std::shared_ptr<Exchange>& exchange) {
    OnPlaced(tensor, exchange);
  };
  by_parts.done = [this, tensor](const Status& ended) {
    if (!ended.ok()) OnError(tensor, ended);  // else Finish has ended it
  };
  worker_->Enqueue(std::move(by_parts));
}

void LocalGroup::OnPlaced(const TensorPointer& tensor, const std::shared_ptr<Exchange>& exchange) {
  Transaction transaction(this);
  state_.tensors.OnPlaced(tensor, exchange, transaction.effects());
}

bool LocalGroup::BeginStep(const TensorPointer& tensor) {
  MutexLock lock(mutex_);
  return tensor->BeginStep();
}

void LocalGroup::EndStep(const TensorPointer& tensor, const Status& status,
                         const std::function<void()>& next) {
  bool goes_on = false;
  {
    Transaction transaction(this);
    goes_on = state_.tensors.EndStep(tensor, status, transaction.effects());
  }
  if (!goes_on) return;
  next();
  Transaction transaction(this);
  state_.tensors.FinishIfDone(tensor, transaction.effects());
}

void LocalGroup::SetParts(const TensorPointer& tensor, uint32_t parts) {
  MutexLock lock(mutex_);
  tensor->SetParts(parts);
}

void LocalGroup::EndPart(const TensorPointer& tensor) {
  Transaction transaction(this);
  state_.tensors.EndPart(tensor, transaction.effects());
}

void LocalGroup::OnReplied(const TensorPointer& tensor, uint32_t part) {
  ReportTensor(LaunchReport::Kind::kReplied, *tensor, part, OkStatus());
}

void LocalGroup::OnError(const TensorPointer& tensor, const Status& status) {
  Transaction transaction(this);
  state_.tensors.OnError(tensor, status, transaction.effects());
}

void LocalGroup::Fail(const Status& reason) {
  Transaction transaction(this);
  state_.tensors.FailGroup(reason, transaction.effects());
}

void LocalGroup::AddArrival(const TensorPointer& tensor, const ArrivalPointer& arrival) {
  MutexLock lock(mutex_);
  tensor->arrivals.push_back(arrival);
}

void LocalGroup::SetArrivals(const TensorPointer& tensor, std::vector<ArrivalPointer> arrivals) {
  MutexLock lock(mutex_);
  tensor->arrivals = std::move(arrivals);
  tensor->is_copied_by_stream = true;
}

std::vector<ArrivalPointer> LocalGroup::ArrivalsOf(const TensorPointer& tensor) {
  MutexLock lock(mutex_);
  return tensor->arrivals;
}

ArrivalPointer LocalGroup::ArrivalOf(const TensorPointer& tensor, uint32_t part) {
  MutexLock lock(mutex_);
  return tensor->arrivals.empty() ? nullptr : tensor->arrivals[part];
}

void LocalGroup::OnArrived(StagedArrival* arrival) {
  MutexLock lock(mutex_);
  if (arrival->EndPart()) LetStreamsGoOn(arrival);
}

StageEvents::Awaited LocalGroup::WhatIsAwaited(const TensorPointer& tensor) {
  MutexLock lock(mutex_);
  if (tensor->has_ended() || !tensor->failure().ok()) return Awaited::kNothing;
  for (const ArrivalPointer& arrival : tensor->arrivals) {
    if (!arrival->HasCome()) return Awaited::kResults;
  }
  return Awaited::kCopies;
}

Status LocalGroup::FailureOf(const TensorPointer& tensor) {
  MutexLock lock(mutex_);
  return tensor->failure();
}

}  // namespace byteps

// When the worker places an exchange: at once, or in turn with others of its name.
#include <utility>

#include "cc/staging/local_group.h"

namespace byteps {

// A program may be started before the GPU has done with the exchanges of the one before. What it
// has started first is placed first: copies and collectives wait for their inputs in this order.
void LocalGroup::PlaceInTurn(const TensorPointer& tensor) {
  if (tensor->on_submitted == nullptr) return Place(tensor);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    tensor->has_turn = true;
    waiting_.push_back(tensor);
  }
  ContinuePlacing();
}

// The next exchange of the name can be placed, with whatever the caller begins when it is told of
// this one's end; those that wait follow.
void LocalGroup::EndTurn(const TensorPointer& tensor) {
  if (!tensor->has_turn) return;
  std::lock_guard<std::mutex> lock(mutex_);
  in_flight_.erase(tensor->gpu.tensor.name);
}

// On one host, those that end or begin together are placed together. Otherwise to place a tensor
// starts its copies, for which neither who puts a program on the GPU nor who sees copies end should
// take the time.
void LocalGroup::ContinuePlacing() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (waiting_.empty()) return;
  }
  if (place_.is_one_host()) return PlaceWaiting();
  launcher_.Add([this] { PlaceWaiting(); });
}

void LocalGroup::PlaceWaiting() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (placing_) return;  // that thread also sees what has changed now
  placing_ = true;
  while (!waiting_.empty() && in_flight_.insert(waiting_.front()->gpu.tensor.name).second) {
    const TensorPointer next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    Place(next);
    lock.lock();
  }
  placing_ = false;
}

void LocalGroup::Place(const TensorPointer& tensor) {
  PartedExchangeRequest by_parts;
  by_parts.tensor = tensor->gpu.tensor;
  by_parts.tensor.per_host = place_.shares_host && by_parts.tensor.kind != ExchangeKind::kGather;
  by_parts.gather_rows = tensor->gpu.gather_rows;
  by_parts.priority = tensor->gpu.priority;
  // When servers' results come is seen here.
  by_parts.is_awaited_elsewhere = tensor->on_submitted != nullptr && place_.is_one_host();
  by_parts.placed = [this, tensor](const std::shared_ptr<Exchange>& exchange) {
    OnPlaced(tensor, exchange);
  };
  by_parts.done = [this, tensor](const Status& ended) { OnEnded(tensor, ended); };
  worker_->Enqueue(std::move(by_parts));
}

void LocalGroup::OnPlaced(const TensorPointer& tensor, const std::shared_ptr<Exchange>& exchange) {
  Status failed;
  TensorPointer previous;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (tensor->finished) return;  // and the exchange, too: the worker has failed
    tensor->exchange = exchange;
    tensor->parts_left = static_cast<uint32_t>(exchange->entry->parts.size());
    TensorPointer& live = live_[exchange->entry->key];
    previous = std::move(live);
    live = tensor;
    failed = failure_;
  }
  // One that has failed, but not ended, while its name was used for another.
  if (previous != nullptr) FailTensor(previous, Cancelled("its name was used again"));
  failed.ok() ? ReportIfReady(tensor) : FailTensor(tensor, failed);
}

}  // namespace byteps

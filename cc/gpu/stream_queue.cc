#include "cc/gpu/stream_queue.h"

#include <utility>

#include "cc/base/clock.h"

namespace byteps {

Status StreamQueue::Create(std::shared_ptr<GpuDevice> device, const std::string& thread_name,
                           std::unique_ptr<StreamQueue>* queue) {
  std::unique_ptr<StreamQueue> created(new StreamQueue(device));
  BYTEPS_RETURN_IF_ERROR(CudaStream::Create(std::move(device), &created->stream_));
  created->thread_ = std::thread([raw = created.get(), thread_name] {
    SetThreadName(thread_name);
    raw->Run();
  });
  *queue = std::move(created);
  return OkStatus();
}

StreamQueue::~StreamQueue() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status StreamQueue::RecordEvent(CudaStreamHandle producer, std::shared_ptr<CudaEvent>* event) {
  BYTEPS_RETURN_IF_ERROR(events_->Take(event));
  return (*event)->Record(producer);
}

Status StreamQueue::Add(const std::shared_ptr<CudaEvent>& event, const Start& start, Done done) {
  std::lock_guard<std::mutex> order(order_mutex_);
  return AddInOrder(event, start, std::move(done));
}

Status StreamQueue::AddBehind(CudaStreamHandle producer, const Start& start, Done done) {
  std::lock_guard<std::mutex> order(order_mutex_);
  std::shared_ptr<CudaEvent> event;
  BYTEPS_RETURN_IF_ERROR(RecordEvent(producer, &event));
  return AddInOrder(event, start, std::move(done));
}

Status StreamQueue::StartAfter(CudaEvent* event) {
  std::lock_guard<std::mutex> order(order_mutex_);
  return event->MakeStreamWait(stream_->handle());
}

Status StreamQueue::RecordEnd(std::shared_ptr<CudaEvent>* event) {
  std::lock_guard<std::mutex> order(order_mutex_);
  return RecordEvent(stream_->handle(), event);
}

Status StreamQueue::AddInOrder(const std::shared_ptr<CudaEvent>& event, const Start& start,
                               Done done) {
  const ScopedContext scope(*device_);
  BYTEPS_RETURN_IF_ERROR(scope.status());
  if (event != nullptr) BYTEPS_RETURN_IF_ERROR(stream_->WaitFor(event->handle()));
  BYTEPS_RETURN_IF_ERROR(start(stream_->handle()));
  std::shared_ptr<CudaEvent> end;
  BYTEPS_RETURN_IF_ERROR(RecordEvent(stream_->handle(), &end));
  {
    std::lock_guard<std::mutex> lock(mutex_);
    pending_.push_back({std::move(end), std::move(done)});
  }
  changed_.notify_one();
  return OkStatus();
}

void StreamQueue::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !pending_.empty(); });
    if (pending_.empty()) return;
    Pending next = std::move(pending_.front());
    pending_.pop_front();
    lock.unlock();
    const Status status = next.end->Wait();
    next.done(status);
    next = Pending();  // what it owns goes before the next wait
    lock.lock();
  }
}

}  // namespace byteps

#include "cc/gpu/copy_engine.h"

#include <utility>

#include "cc/base/clock.h"

namespace byteps {

Status CopyEngine::Create(std::shared_ptr<GpuDevice> device, std::unique_ptr<CopyEngine>* engine) {
  std::unique_ptr<CopyEngine> created(new CopyEngine);
  created->driver_ = &device->driver();
  BYTEPS_RETURN_IF_ERROR(Lane::Create(device, "byteps-to-host", &created->to_host_));
  BYTEPS_RETURN_IF_ERROR(Lane::Create(device, "byteps-to-gpu", &created->to_device_));
  *engine = std::move(created);
  return OkStatus();
}

CopyEngine::~CopyEngine() {
  // A copy to the host may be followed by one to the device.
  to_host_.reset();
  to_device_.reset();
}

Status CopyEngine::CopyToHost(CudaStreamHandle producer, CudaAddress from, void* to, size_t bytes,
                              Done done) {
  const auto start = [&](CudaStreamHandle stream) {
    return driver_->cuMemcpyDtoHAsync(to, from, bytes, stream);
  };
  return to_host_->Add(&producer, start, "cuMemcpyDtoHAsync", std::move(done));
}

Status CopyEngine::CopyToDevice(const void* from, CudaAddress to, size_t bytes, Done done,
                                const CudaStreamHandle* owner) {
  const auto start = [&](CudaStreamHandle stream) {
    return driver_->cuMemcpyHtoDAsync(to, from, bytes, stream);
  };
  return to_device_->Add(owner, start, "cuMemcpyHtoDAsync", std::move(done));
}

Status CopyEngine::Lane::Create(std::shared_ptr<GpuDevice> device, const std::string& thread_name,
                                std::unique_ptr<Lane>* lane) {
  std::unique_ptr<Lane> created(new Lane(device));
  BYTEPS_RETURN_IF_ERROR(CudaStream::Create(std::move(device), &created->stream_));
  created->thread_ = std::thread([lane = created.get(), thread_name] {
    SetThreadName(thread_name);
    lane->Run();
  });
  *lane = std::move(created);
  return OkStatus();
}

CopyEngine::Lane::~Lane() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Status CopyEngine::Lane::Add(const CudaStreamHandle* producer,
                             const std::function<CudaResult(CudaStreamHandle)>& start,
                             const char* call, Done done) {
  {
    // Copies come to the stream in the order in which their producers' points were recorded, so
    // that none waits behind one whose tensor is computed later.
    std::lock_guard<std::mutex> lock(mutex_);
    const ScopedContext scope(*device_);
    BYTEPS_RETURN_IF_ERROR(scope.status());
    std::unique_ptr<CudaEvent> event;
    BYTEPS_RETURN_IF_ERROR(TakeEvent(&event));
    if (producer != nullptr) {
      BYTEPS_RETURN_IF_ERROR(event->Record(*producer));
      BYTEPS_RETURN_IF_ERROR(stream_->WaitFor(event->handle()));
    }
    BYTEPS_RETURN_IF_ERROR(device_->driver().Check(start(stream_->handle()), call));
    // The stream's wait holds on to what was recorded before.
    BYTEPS_RETURN_IF_ERROR(event->Record(stream_->handle()));
    pending_.push_back({std::move(event), std::move(done)});
  }
  changed_.notify_one();
  return OkStatus();
}

Status CopyEngine::Lane::TakeEvent(std::unique_ptr<CudaEvent>* event) {
  if (free_events_.empty()) return CudaEvent::Create(device_, event);
  *event = std::move(free_events_.back());
  free_events_.pop_back();
  return OkStatus();
}

void CopyEngine::Lane::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !pending_.empty(); });
    if (pending_.empty()) return;
    Pending next = std::move(pending_.front());
    pending_.pop_front();
    lock.unlock();
    const Status status = next.event->Wait();
    next.done(status);
    next.done = nullptr;  // what it owns goes before the next wait
    lock.lock();
    free_events_.push_back(std::move(next.event));
  }
}

}  // namespace byteps

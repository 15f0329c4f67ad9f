#include "cc/gpu/event_pool.h"

#include <utility>

namespace byteps {

std::shared_ptr<EventPool> EventPool::Create(std::shared_ptr<GpuDevice> device) {
  return std::shared_ptr<EventPool>(new EventPool(std::move(device)));
}

Status EventPool::Take(std::shared_ptr<CudaEvent>* event) {
  std::unique_ptr<CudaEvent> taken;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!free_.empty()) {
      taken = std::move(free_.back());
      free_.pop_back();
    }
  }
  if (taken == nullptr) BYTEPS_RETURN_IF_ERROR(CudaEvent::Create(device_, &taken));
  *event = std::shared_ptr<CudaEvent>(
      taken.release(),
      [pool = shared_from_this()](CudaEvent* returned) { pool->Return(returned); });
  return OkStatus();
}

void EventPool::Return(CudaEvent* event) {
  std::lock_guard<std::mutex> lock(mutex_);
  free_.emplace_back(event);
}

}  // namespace byteps

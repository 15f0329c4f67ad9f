// EventPool: CUDA events that are created once and used again and again.
//
// To let go of one takes no call of CUDA's: the last to hold it may be a thread that must not wait
// for the GPU, such as one that receives what a stream waits for.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "cc/base/status.h"
#include "cc/gpu/device.h"

namespace byteps {

// Thread-safe. It grows to the most that were in use at one time.
class EventPool : public std::enable_shared_from_this<EventPool> {
 public:
  static std::shared_ptr<EventPool> Create(std::shared_ptr<GpuDevice> device);

  // An event that nobody else has; whoever waited for what it stood for goes on to wait for that.
  // The pool gets it back when its last owner is gone, and outlives it.
  Status Take(std::shared_ptr<CudaEvent>* event);

 private:
  explicit EventPool(std::shared_ptr<GpuDevice> device) : device_(std::move(device)) {}
  void Return(CudaEvent* event);

  const std::shared_ptr<GpuDevice> device_;
  std::mutex mutex_;  // never held during a call of CUDA's
  std::vector<std::unique_ptr<CudaEvent>> free_;
};

}  // namespace byteps

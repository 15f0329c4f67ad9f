// Where hand-overs of compiled programs get memory on a GPU.
#pragma once

#include <map>
#include <mutex>

#include "cc/gpu/cuda_driver.h"
#include "tensorflow/core/framework/allocator.h"

namespace byteps {

// TensorFlow's allocators of GPU memory, by the stream in whose order memory that is given back is
// used again. Programs' calls are not told of them. Thread-safe.
class GpuAllocators {
 public:
  void Note(CudaStreamHandle stream, tensorflow::Allocator* allocator) {
    std::lock_guard<std::mutex> lock(mutex_);
    allocators_[stream] = allocator;
  }
  // Null: it has not been noted.
  tensorflow::Allocator* Of(CudaStreamHandle stream) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = allocators_.find(stream);
    return found == allocators_.end() ? nullptr : found->second;
  }

 private:
  std::mutex mutex_;
  std::map<CudaStreamHandle, tensorflow::Allocator*> allocators_;  // which outlive every step
};

inline GpuAllocators& AllGpuAllocators() {
  static auto* const all = new GpuAllocators;
  return *all;
}

}  // namespace byteps

// DetachedExchanges: exchanges on a GPU that one of JAX's compiled programs starts and a later one
// ends, and the GPU memory that they use.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cc/gpu/device.h"
#include "cc/gpu/pinned_pool.h"
#include "cc/xla/stream_exchanges.h"

namespace byteps {

struct DetachedExchange {
  StreamExchangePointer exchange;  // null: there is none
  PinnedPool::Block memory;        // of the GPU; the exchange's input, and later its result
};

// Thread-safe. Only MemoryOf and WaitUntilTakenEnded block.
class DetachedExchanges {
 public:
  // Keeps one that nobody waits for yet, by its name.
  void Add(DetachedExchange detached) {
    std::lock_guard<std::mutex> lock(mutex_);
    started_[detached.exchange->name] = std::move(detached);
  }

  // The one of this name, for who waits for it or gives it up.
  DetachedExchange Take(const std::string& name) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = started_.find(name);
    if (found == started_.end()) return {};
    DetachedExchange detached = std::move(found->second);
    started_.erase(found);
    return detached;
  }

  // Memory whose last use was in the order of this stream. None is freed while the process runs:
  // CUDA would keep other threads from the GPU until the stream has gone on.
  Status MemoryOf(CudaStreamHandle stream, size_t bytes, PinnedPool::Block* block) {
    std::shared_ptr<PinnedPool> pool;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      std::shared_ptr<PinnedPool>& known = pools_[stream];
      if (known == nullptr) {
        std::shared_ptr<GpuDevice> device;
        BYTEPS_RETURN_IF_ERROR(GpuDevice::OfStream(stream, &device));
        known = PinnedPool::Create(MemoryOfGpu(std::move(device)));
      }
      pool = known;
    }
    return pool->Take(bytes, block);
  }

  // A stream has been made to wait for this one.
  void NoteTaken(StreamExchangePointer exchange) {
    std::lock_guard<std::mutex> lock(mutex_);
    taken_.push_back(std::move(exchange));
    if (taken_.size() < 2 * ended_at_) return;
    AllStreamExchanges().RemoveEnded(&taken_);
    ended_at_ = std::max<size_t>(taken_.size(), kFewTaken);
  }

  // Blocks until those have ended that streams were made to wait for.
  void WaitUntilTakenEnded() {
    std::vector<StreamExchangePointer> taken;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      taken.swap(taken_);
    }
    AllStreamExchanges().WaitUntilEnded(taken);
  }

 private:
  static constexpr size_t kFewTaken = 1024;

  static PinnedSource MemoryOfGpu(std::shared_ptr<GpuDevice> device) {
    PinnedSource source;
    source.allocate = [device = std::move(device)](size_t bytes, void** address) {
      std::unique_ptr<DeviceBuffer> buffer;
      BYTEPS_RETURN_IF_ERROR(DeviceBuffer::Create(device, bytes, &buffer));
      *address = buffer.release()->pointer();
      return OkStatus();
    };
    source.free = [](void*, size_t) {};
    return source;
  }

  std::mutex mutex_;  // guards all below
  std::map<std::string, DetachedExchange> started_;
  std::map<CudaStreamHandle, std::shared_ptr<PinnedPool>> pools_;
  std::vector<StreamExchangePointer> taken_;
  size_t ended_at_ = kFewTaken;  // how many of `taken_` had not ended when it was looked through
};

inline DetachedExchanges& AllDetached() {
  static auto* const all = new DetachedExchanges;  // engine threads may outlive static objects
  return *all;
}

}  // namespace byteps

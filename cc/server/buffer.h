// Memory for sums and results, and the pool that hands it out again round after round.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/van/van.h"

namespace byteps {

// The bytes of all buffers of a service. Shared, because a reply that waits to be sent may outlive
// the service.
using AllocatedBytes = std::shared_ptr<std::atomic<uint64_t>>;

// Uninitialized memory, aligned to a cache line.
class Buffer {
 public:
  // RESOURCE_EXHAUSTED if there is no memory.
  // `registry`: where the memory is made known, or null.
  static Status New(uint64_t bytes, AllocatedBytes allocated, std::unique_ptr<Buffer>* buffer,
                    std::shared_ptr<MemoryRegistry> registry = nullptr);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  uint8_t* data() { return data_; }
  uint64_t bytes() const { return bytes_; }
  // From now on it is one of these.
  void CountAmong(AllocatedBytes allocated);

 private:
  Buffer(uint8_t* data, uint64_t bytes, AllocatedBytes allocated,
         std::shared_ptr<MemoryRegistry> registry);

  uint8_t* const data_;
  const uint64_t bytes_;
  AllocatedBytes allocated_;
  const std::shared_ptr<MemoryRegistry> registry_;
};

// Buffers of one size for one part. Thread-safe. A buffer returns by itself when its last owner
// drops it, which may be an I/O thread that has sent it.
class BufferPool : public std::enable_shared_from_this<BufferPool> {
 public:
  // At most one round of a part is outstanding per worker (protocol rule 10), so that nobody can
  // still be reading the round before the last one: two buffers suffice, one being filled and one
  // being sent. So many are kept.
  static constexpr size_t kKeptBuffers = 2;

  // An I/O thread may have sent a result and be held up by the scheduler before it drops the
  // buffer, while the workers go on to the next rounds: for that moment there are more. Beyond this
  // number it is not a coincidence but a fault.
  static constexpr size_t kMostBuffers = 32;

  // `more`: how many more than the above may be in use, and are kept, for a long time.
  static std::shared_ptr<BufferPool> New(uint64_t bytes, AllocatedBytes allocated,
                                         std::shared_ptr<MemoryRegistry> registry = nullptr,
                                         size_t more = 0);

  // INTERNAL if kMostBuffers are in use, RESOURCE_EXHAUSTED if there is no memory.
  Status Acquire(std::shared_ptr<Buffer>* buffer);

 private:
  BufferPool(uint64_t bytes, AllocatedBytes allocated, std::shared_ptr<MemoryRegistry> registry,
             size_t more)
      : bytes_(bytes),
        allocated_(std::move(allocated)),
        registry_(std::move(registry)),
        more_(more) {}
  void Return(std::unique_ptr<Buffer> buffer);

  const uint64_t bytes_;
  const AllocatedBytes allocated_;
  const std::shared_ptr<MemoryRegistry> registry_;
  const size_t more_;
  Mutex mutex_;
  size_t in_use_ BYTEPS_GUARDED_BY(mutex_) = 0;
  std::vector<std::unique_ptr<Buffer>> free_ BYTEPS_GUARDED_BY(mutex_);
};

}  // namespace byteps

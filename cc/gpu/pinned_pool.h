// PinnedPool: pinned host memory that is allocated once and used again and again.
//
// The pool never makes anybody wait for memory: an exchange holds it until the other workers have
// sent theirs, and workers that wait for memory in different order would wait for ever (protocol
// rule 9). It grows to the most that was in use at one time and gives nothing back until it ends.
// To grow may take as long as something else keeps CUDA busy. Only Take waits for that, not whoever
// gives back a block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/gpu/device.h"

namespace byteps {

// Where a pool's memory comes from: pages that are pinned in a real pool.
struct PinnedSource {
  std::function<Status(size_t bytes, void** address)> allocate;
  std::function<void(void* address, size_t bytes)> free;
};

PinnedSource PinnedMemoryOf(const std::shared_ptr<GpuDevice>& device);

// Hears of a pool's memory, such as a network card that is to read it. Either may be called on any
// thread, one at a time, and must not call the pool.
struct PinnedWatcher {
  std::function<void(void* address, size_t bytes)> allocated;
  std::function<void(void* address)> about_to_free;
};

struct PinnedPoolCounters {
  uint64_t allocations = 0;      // calls of the source
  uint64_t allocated_bytes = 0;  // what they gave
  uint64_t bytes_in_use = 0;     // handed out now, with what rounding adds
};

class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  // A piece of the pool, which gets it back when the last owner is gone. Its bytes are what the
  // previous user left there.
  using Block = std::shared_ptr<void>;

  static std::shared_ptr<PinnedPool> Create(PinnedSource source);
  ~PinnedPool();

  // At least `bytes` bytes, aligned to a cache line; a block outlives the pool's other owners.
  // The source's error if it has no more.
  Status Take(size_t bytes, Block* block);

  // Tells `watcher`, the only one from now on, of what has been allocated and of what will be.
  void Watch(PinnedWatcher watcher);

  PinnedPoolCounters counters() const;

  // What `bytes` is rounded up to: a size of few, at most a quarter more.
  static size_t SizeFor(size_t bytes);

 private:
  explicit PinnedPool(PinnedSource source) : source_(std::move(source)) {}
  void* TakeFree(size_t size);  // null: there is none
  void Return(void* address, size_t size);
  // With growth_mutex_ held.
  Status Grow(size_t size);
  Status Allocate(size_t bytes, void** address);

  const PinnedSource source_;
  std::mutex growth_mutex_;  // guards these two; taken before mutex_
  std::vector<std::pair<void*, size_t>> allocated_;
  PinnedWatcher watcher_;     // its functions may be null
  mutable std::mutex mutex_;  // guards these two; never held during a call of CUDA's
  std::map<size_t, std::vector<void*>> free_;  // by rounded size
  PinnedPoolCounters counters_;
};

}  // namespace byteps

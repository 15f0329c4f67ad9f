// Scratch memory between the network and a sum.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"

namespace byteps {

// Small enough to stay in a core's cache until it has been added.
inline constexpr size_t kScratchBytes = 128 * 1024;

struct alignas(64) Scratch {
  uint8_t data[kScratchBytes];
};

// Hands out scratch memory again and again: as much as contributions have ever needed at once,
// which is about one for every connection. Thread-safe.
class ScratchPool {
 public:
  std::unique_ptr<Scratch> Take() {
    MutexLock lock(mutex_);
    // Uninitialized: only what has been received is read.
    if (free_.empty()) return std::unique_ptr<Scratch>(new Scratch);
    std::unique_ptr<Scratch> scratch = std::move(free_.back());
    free_.pop_back();
    return scratch;
  }

  void Return(std::unique_ptr<Scratch> scratch) {
    if (scratch == nullptr) return;
    MutexLock lock(mutex_);
    free_.push_back(std::move(scratch));
  }

 private:
  Mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> free_ BYTEPS_GUARDED_BY(mutex_);
};

}  // namespace byteps

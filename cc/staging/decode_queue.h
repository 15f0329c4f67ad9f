// DecodeQueue: sums that the device is to decode. Those that come soon after each other, of any
// tensors, are one launch: it has to wait for those by which TensorFlow puts its own work on the
// GPU, and they for it.
#pragma once

#include <deque>
#include <functional>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/work_threads.h"
#include "cc/staging/staged_part.h"

namespace byteps {

// Thread-safe. Its thread is one of its own: launches wait for each other.
class DecodeQueue {
 public:
  // `decode` gets those of one launch, on the queue's thread.
  explicit DecodeQueue(std::function<void(const std::vector<PartPointer>&)> decode)
      : decode_(std::move(decode)) {}

  // Returns at once: it is called by a thread that brings results.
  void Add(const PartPointer& part);
  // As WorkThreads::Stop.
  void Stop() { decoder_.Stop(); }

 private:
  void Run();
  std::vector<PartPointer> Take();

  const std::function<void(const std::vector<PartPointer>&)> decode_;
  Mutex mutex_;
  CondVar fills_launch_;
  std::deque<PartPointer> arrived_ BYTEPS_GUARDED_BY(mutex_);
  WorkThreads decoder_{"byteps-decode", 1};
};

}  // namespace byteps

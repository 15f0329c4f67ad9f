#include "cc/staging/decode_queue.h"

#include <utility>

#include "cc/base/clock.h"

namespace byteps {
namespace {

// A sum waits so long for others. At 10 Gbit/s as many come meanwhile as one launch takes, of thc
// in parts of 0.5 MB.
constexpr int64_t kPatienceNanos = 500'000;

}  // namespace

void DecodeQueue::Add(const PartPointer& part) {
  size_t count = 0;
  {
    MutexLock lock(mutex_);
    arrived_.push_back(part);
    count = arrived_.size();
  }
  if (count == kPartsTogether) fills_launch_.NotifyOne();
  if (count == 1) decoder_.Add([this] { Run(); });
}

void DecodeQueue::Run() {
  while (true) {
    const std::vector<PartPointer> parts = Take();
    if (parts.empty()) return;
    decode_(parts);
  }
}

// Those of one launch. None if there are none left, else it waits for more.
std::vector<PartPointer> DecodeQueue::Take() {
  std::vector<PartPointer> taken;
  MutexLock lock(mutex_);
  if (arrived_.empty()) return taken;
  const int64_t until_ns = MonotonicNanos() + kPatienceNanos;
  while (arrived_.size() < kPartsTogether) {
    const int64_t left_ns = until_ns - MonotonicNanos();
    if (left_ns <= 0) break;
    fills_launch_.WaitFor(mutex_, left_ns);
  }
  while (!arrived_.empty() && taken.size() < kPartsTogether) {
    taken.push_back(std::move(arrived_.front()));
    arrived_.pop_front();
  }
  return taken;
}

}  // namespace byteps

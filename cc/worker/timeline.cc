#include "cc/worker/timeline.h"

#include <algorithm>
#include <utility>

#include "cc/base/clock.h"

namespace byteps {

void Timeline::Start(uint64_t max_parts) {
  MutexLock lock(mutex_);
  recorded_ = Recording();
  parts_left_ = inputs_left_ = max_parts;
  recording_ = true;
}

void Timeline::Stop() { recording_ = false; }

std::unique_ptr<ExchangeTrace> Timeline::NewTrace(const TensorDescription& tensor, uint64_t round,
                                                  int32_t priority) const {
  if (!recording_.load(std::memory_order_relaxed)) return nullptr;
  auto trace = std::make_unique<ExchangeTrace>();
  trace->tensor = tensor;
  trace->round = round;
  trace->priority = priority;
  trace->enqueue_ns = WallNanos();
  return trace;
}

void Timeline::Add(std::unique_ptr<ExchangeTrace> trace, const Status& status) {
  trace->status = status.code();
  trace->done_ns = WallNanos();
  const uint64_t parts = std::max<uint64_t>(1, trace->parts.size());
  MutexLock lock(mutex_);
  if (!recording_) return;
  if (parts > parts_left_) {
    parts_left_ = 0;  // the end of what was recorded has no holes
    ++recorded_.dropped;
    return;
  }
  parts_left_ -= parts;
  recorded_.exchanges.push_back(std::move(trace));
}

void Timeline::AddInput(const InputWait& wait) {
  MutexLock lock(mutex_);
  if (!recording_ || inputs_left_ == 0) return;
  --inputs_left_;
  recorded_.inputs.push_back(wait);
}

Timeline::Recording Timeline::Take() {
  MutexLock lock(mutex_);
  return std::exchange(recorded_, Recording());
}

}  // namespace byteps

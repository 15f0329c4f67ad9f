// Timeline: when each part of each tensor went through which stage, recorded while somebody wants
// to know.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/base/tensor_description.h"
#include "cc/worker/state/exchange_trace.h"

namespace byteps {

// The training waited for a batch.
struct InputWait {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};

// Thread-safe.
class Timeline {
 public:
  // Forgets what it has. Of more than `max_parts` parts until Stop, further ones are only
  // counted.
  void Start(uint64_t max_parts);
  void Stop();

  // Null while nobody wants to know: all that a timeline costs then.
  std::unique_ptr<ExchangeTrace> NewTrace(const TensorDescription& tensor, uint64_t round,
                                          int32_t priority) const;

  // The exchange ends now.
  void Add(std::unique_ptr<ExchangeTrace> trace, const Status& status);

  // A wait for input has ended. Beyond `max_parts` of them, none is recorded.
  void AddInput(const InputWait& wait);

  // What has been recorded since Start or the last Take, in the order of ending.
  struct Recording {
    std::vector<std::unique_ptr<const ExchangeTrace>> exchanges;
    uint64_t dropped = 0;  // exchanges beyond the limit
    std::vector<InputWait> inputs;
  };
  Recording Take();

 private:
  std::atomic<bool> recording_{false};
  Mutex mutex_;
  uint64_t parts_left_ BYTEPS_GUARDED_BY(mutex_) = 0;
  uint64_t inputs_left_ BYTEPS_GUARDED_BY(mutex_) = 0;
  Recording recorded_ BYTEPS_GUARDED_BY(mutex_);
};

}  // namespace byteps

// Timeline: when each part of each tensor went through which stage, recorded while somebody wants
// to know.
#ifndef TF_BYTEPS_CC_WORKER_TIMELINE_H_
#define TF_BYTEPS_CC_WORKER_TIMELINE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/base/tensor_description.h"
#include "cc/wire/control.h"
#include "cc/wire/frame.h"

namespace byteps {

// All times are wall clock (WallNanos), because some are the server's; 0: it did not happen.
struct PartTrace {
  uint64_t bytes = 0;  // that this worker sends
  int32_t server = -1;
  int64_t computed_ns = 0;       // GPU: the tensor was there
  int64_t reduce_ns = 0;         // GPU: the workers of this host have reduced it
  int64_t copy_out_ns = 0;       // GPU: it was in the host's memory
  int64_t push_ns = 0;           // handed to the Van
  int64_t arrival_begin_ns = 0;  // the server's clock: the push's header
  int64_t arrival_end_ns = 0;    // the server's clock: the push's last byte
  int64_t answer_ns = 0;         // the server's clock: the reply was queued
  int64_t reply_begin_ns = 0;    // the reply's header
  int64_t reply_end_ns = 0;      // the reply's last byte
  int64_t copy_in_ns = 0;        // GPU: the result was in the memory of the GPU that sent the part
  int64_t broadcast_ns = 0;      // GPU: the result was in this worker's GPU

  void OnReply(const FrameHeader& header);
};

// One tensor in one round. The worker fills it while the exchange lives, with its mutex held.
struct ExchangeTrace {
  TensorDescription tensor;
  uint64_t round = 0;
  int32_t priority = 0;
  StatusCode status = StatusCode::kOk;
  int64_t enqueue_ns = 0;
  int64_t place_ns = 0;  // parts and servers were known: they wait for their turn
  int64_t done_ns = 0;   // the callback was called
  std::vector<PartTrace> parts;

  void OnPlaced(const TableEntry& entry);
};

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

#endif  // TF_BYTEPS_CC_WORKER_TIMELINE_H_

// StagedTensor: one tensor of a group of GPUs, from Enqueue to its end.
#ifndef TF_BYTEPS_CC_STAGING_STATE_STAGED_TENSOR_H_
#define TF_BYTEPS_CC_STAGING_STATE_STAGED_TENSOR_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cc/base/status.h"
#include "cc/gpu/cuda_driver.h"
#include "cc/worker/state/exchange.h"

namespace byteps {

class StreamEvent;
struct StagedArrival;  // staging/staged_part.h: of no use here but to be passed on

// Guarded by the group's mutex but for what is set before others see it.
struct StagedTensor {
  ExchangeRequest gpu;  // as it was given
  std::function<void(const std::shared_ptr<StreamEvent>& end)> on_submitted;
  CudaStreamHandle stream = nullptr;
  std::shared_ptr<StreamEvent> input_ready;  // null: the input is computed before anything begins
  std::shared_ptr<Exchange> exchange;        // the worker's; null until it is placed
  bool computed = false;
  bool reported = false;
  bool has_turn = false;  // its name is in flight by Turns, or it waits there
  uint32_t parts_left = 0;
  int32_t at_work = 0;  // steps of the device that use the tensor's memory
  Status failure;       // not OK: ends as soon as nothing is at work
  bool finished = false;
  // Whether the caller's stream waits for the servers' results, and copies them; what it copies.
  bool is_copied_by_stream = false;
  std::vector<std::shared_ptr<StagedArrival>> arrivals;

  uint32_t part_count() const { return static_cast<uint32_t>(exchange->entry->parts.size()); }
};
using TensorPointer = std::shared_ptr<StagedTensor>;

}  // namespace byteps

#endif  // TF_BYTEPS_CC_STAGING_STATE_STAGED_TENSOR_H_

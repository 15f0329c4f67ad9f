// StagedTensor: one tensor of a group of GPUs, from Enqueue to its end, and how far it is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/transition.h"
#include "cc/gpu/cuda_driver.h"
#include "cc/worker/state/exchange.h"

namespace byteps {

class StreamEvent;
struct StagedArrival;  // staging/staged_part.h: of no use here but to be passed on

// Results of some parts of a tensor that come to one place, from where streams copy them.
struct ArrivalCount {
  size_t parts_left = 1;  // whose results have not come
  // One has come: whether it was the last.
  bool EndPart() { return --parts_left == 0; }
};

// Guarded by the group's mutex but for what is set before others see it. What was given, and what
// the device needs, is only kept here.
class StagedTensor {
 public:
  enum class State {
    kEnqueued,  // neither computed nor placed
    kComputed,  // the worker has not placed its exchange
    kPlaced,    // its input is not computed
    kStarted,   // its stages
    kFailing,   // steps of the device still use its memory
    kEnded,     // well or not
  };

  // "last part": no step uses the memory any more. "error": no step uses it. docs/states.md draws
  // this.
  static constexpr Transition<State> kTransitions[] = {
      {State::kEnqueued, "computed", State::kComputed},
      {State::kEnqueued, "placed", State::kPlaced},
      {State::kComputed, "placed", State::kStarted},
      {State::kPlaced, "computed", State::kStarted},
      {State::kStarted, "last part", State::kEnded},
      {State::kStarted, "error at work", State::kFailing},
      {State::kFailing, "last step", State::kEnded},
      {State::kEnqueued, "error", State::kEnded},
      {State::kComputed, "error", State::kEnded},
      {State::kPlaced, "error", State::kEnded},
      {State::kStarted, "error", State::kEnded},
  };

  State state() const { return state_; }
  bool has_ended() const { return state_ == State::kEnded; }
  // OK if it has not failed.
  const Status& failure() const { return failure_; }
  uint32_t part_count() const { return static_cast<uint32_t>(exchange->entry->parts.size()); }
  // "tensor "dense/kernel", round 7"; once placed.
  std::string Name() const { return exchange->Name(); }

  // These two return whether its stages begin with this. A state in which it cannot happen any more
  // stays as it is.
  bool NoteComputed();
  bool NotePlaced(const std::shared_ptr<Exchange>& placed);

  // A step of the device that uses the tensor's memory. False if it must not begin: the memory may
  // be gone.
  bool BeginStep();
  // Whether it was the last one.
  bool EndStep() { return --at_work_ == 0; }

  // Of a gather the parts are the ranks' rows.
  void SetParts(uint32_t parts) { parts_left_ = parts; }
  void EndPart() { --parts_left_; }
  // Whether nothing is left to do. A part can be done while a collective of another one still reads
  // the tensor.
  bool IsDone() const { return state_ == State::kStarted && parts_left_ == 0 && at_work_ == 0; }

  // False if it has failed or ended before. It may be ended at once if it is not `is_at_work`.
  bool Fail(const Status& reason);
  bool is_at_work() const { return at_work_ > 0; }
  // False if it has ended before.
  bool End();

  ExchangeRequest gpu;  // as it was given
  std::function<void(const std::shared_ptr<StreamEvent>& end)> on_submitted;
  CudaStreamHandle stream = nullptr;
  std::shared_ptr<StreamEvent> input_ready;  // null: the input is computed before anything begins
  std::shared_ptr<Exchange> exchange;        // the worker's; null until it is placed
  bool has_turn = false;                     // it waits, or is in flight, by Turns
  // Whether the caller's stream waits for the servers' results, and copies them; what it copies.
  bool is_copied_by_stream = false;
  std::vector<std::shared_ptr<StagedArrival>> arrivals;

 private:
  State state_ = State::kEnqueued;
  uint32_t parts_left_ = 0;
  int32_t at_work_ = 0;  // steps of the device that use the tensor's memory
  Status failure_;
};
using TensorPointer = std::shared_ptr<StagedTensor>;

}  // namespace byteps

// LearnedOrder: priorities that follow from the order in which names are used for the first time,
// whatever the order of a model's variables.
//
// Workers should send the same at about the same time: a sum that waits for a part which another
// worker sends last keeps its step waiting, too. While backpropagation makes gradients, each worker
// has another newest one; in the order in which they are made all agree.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/worker/state/exchange_request.h"

namespace byteps {

// Not thread-safe.
class LearnedOrder {
 public:
  // The number of a name that is used for the first time: 1, 2, ...
  int32_t NumberNewName() {
    positions_.push_back(kUnknown);
    return static_cast<int32_t>(positions_.size());
  }

  // The priority of an exchange under the name with this number, if it is a learned one. In forward
  // order it is that of an exchange whose step is not complete: what is made first goes first, as
  // far as it is not held back.
  int32_t PriorityOf(int32_t number, int32_t given);

  // The same once a step's last exchange in forward order is there: now what the forward pass needs
  // first goes first. `priority` is the exchange's before.
  int32_t PriorityInForwardOrder(int32_t priority) const;

  // The priority of a part while the step is not complete; `priority` is the exchange's, `key` its
  // tensor's.
  //
  // The links carry a share of a step's bytes until its last exchange is there. If that was all of
  // what is made first, the next forward pass would wait for nearly all of what it needs first, and
  // then leave the links idle. So each exchange holds the rest back: those parts go when there is
  // nothing else, and in forward order once the step is complete. All workers choose the same
  // parts.
  int32_t PriorityOfPart(int32_t priority, uint64_t key, uint32_t part) const;

  // Bytes of a step that have left while it was not complete.
  void NoteEarly(uint64_t bytes) { early_bytes_ += bytes; }

  // The step is complete, and so many of its bytes have not left.
  void NoteStep(uint64_t late_bytes);

  // How much of the credit steps that overlap the next may use. What a step makes last, the next
  // one needs first, and it cannot overtake what is in flight: that is to be no more than an
  // eighth of a step's bytes. But it may be a quarter of the credit, or the links would idle.
  uint64_t CreditOfOverlap(uint64_t credit) const;

  // Notes an exchange in forward order; whether it is the last of its step, as far as is known.
  bool CompletesStep(int32_t number);

 private:
  static constexpr int32_t kUnknown = -1;

  // Whether what is made late has an early position: else the positions say nothing.
  bool PositionsHold() const;

  std::vector<int32_t> positions_;  // in the forward pass, by number
  bool positions_hold_ = false;
  int32_t last_in_forward_order_ = 0;
  double early_share_ = 1;  // of a step's bytes
  uint64_t early_bytes_ = 0;
  uint64_t step_bytes_ = 0;  // of the last one that is complete; 0: none is
  uint64_t steps_ = 0;
};

}  // namespace byteps

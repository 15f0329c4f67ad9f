// LearnedOrder: priorities that follow from the order in which names are used for the first time,
// whatever the order of a model's variables.
//
// Workers should send the same at about the same time: a sum that waits for a part which another
// worker sends last keeps its step waiting, too. While backpropagation makes gradients, each worker
// has another newest one; in the order in which they are made all agree.
#ifndef TF_BYTEPS_CC_WORKER_LEARNED_ORDER_H_
#define TF_BYTEPS_CC_WORKER_LEARNED_ORDER_H_

#include <algorithm>
#include <cstdint>

#include "cc/worker/exchange_request.h"

namespace byteps {

// Not thread-safe.
class LearnedOrder {
 public:
  // The number of a name that is used for the first time: 1, 2, ...
  int32_t NumberNewName() { return ++names_; }

  // The priority of an exchange under the name with this number, if it is a learned one. In forward
  // order it is that of an exchange whose step is not complete: what is made first goes first.
  int32_t PriorityOf(int32_t number, int32_t given) const {
    if (given == kBackwardOrder) return kFirstInBackwardOrder - number;
    return given == kForwardOrder ? -number : given;
  }

  // The same once a step's last exchange in forward order is there: now what is made last goes
  // first.
  int32_t PriorityInForwardOrder(int32_t number) const { return number; }

  // Notes an exchange in forward order; whether it is the last of its step, as far as is known.
  bool CompletesStep(int32_t number) {
    const bool is_last = number == last_in_forward_order_;
    last_in_forward_order_ = std::max(last_in_forward_order_, number);
    return is_last;
  }

 private:
  // Who uses kBackwardOrder waits for results in this step: they go before all in kForwardOrder.
  static constexpr int32_t kFirstInBackwardOrder = 1 << 30;

  int32_t names_ = 0;
  int32_t last_in_forward_order_ = 0;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_WORKER_LEARNED_ORDER_H_

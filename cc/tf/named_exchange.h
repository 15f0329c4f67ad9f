// What the attributes of an operation, or those of a custom call, say about an exchange.
#ifndef TF_BYTEPS_CC_TF_NAMED_EXCHANGE_H_
#define TF_BYTEPS_CC_TF_NAMED_EXCHANGE_H_

#include <cstdint>

#include "cc/base/tensor_description.h"
#include "cc/worker/state/exchange_request.h"

namespace byteps {

// All but the shape.
struct NamedExchange {
  TensorDescription tensor;
  int32_t priority = kBackwardOrder;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_TF_NAMED_EXCHANGE_H_

// What the attributes of an operation, or those of a custom call, say about an exchange.
#pragma once

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

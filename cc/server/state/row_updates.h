// Updates of a row of a table by the sum of the workers' gradients: the arithmetic of the optimizer
// of the same name in Keras, or in tf_byteps.keras.optimizers.
//
// What depends on the step, as Adam's correction of the bias, is in the rate, which workers make
// of the optimizer's own count of steps. So a server counts none, and none can be lost with it.
#pragma once

#include <cstdint>

#include "cc/base/row_rule.h"

namespace byteps {

// `row`: `width` weights, and the rule's states, one after the other. All of it follows from the
// arguments: two servers that update alike have the same bits.
template <typename T>
using RowUpdate = void (*)(const RowRule& rule, T rate, const T* gradient, uint64_t width, T* row);

// For float and double.
template <typename T>
RowUpdate<T> RowUpdateOf(RowRule::Kind kind);

}  // namespace byteps

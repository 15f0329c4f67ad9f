// RoundUp: the least multiple of a unit that is not below a number.
#ifndef TF_BYTEPS_CC_BASE_ROUND_UP_H_
#define TF_BYTEPS_CC_BASE_ROUND_UP_H_

#include <cstddef>

namespace byteps {

// `unit` is not 0.
constexpr size_t RoundUp(size_t number, size_t unit) { return (number + unit - 1) / unit * unit; }

}  // namespace byteps

#endif  // TF_BYTEPS_CC_BASE_ROUND_UP_H_

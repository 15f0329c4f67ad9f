// RoundUp: the least multiple of a unit that is not below a number.
#pragma once

#include <cstddef>

namespace byteps {

// `unit` is not 0.
constexpr size_t RoundUp(size_t number, size_t unit) { return (number + unit - 1) / unit * unit; }

}  // namespace byteps

// Summation kernels: the inner loops of the server. One implementation per instruction set, chosen
// once for this CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/dtype.h"

namespace byteps {

// All functions work on `count` elements. `accumulator` holds elements of AccumulatorDType(dtype)
// (float32 for float16 and bfloat16), `wire` elements of `dtype`; neither needs any alignment; they
// do not overlap. Integer sums and
// products wrap. Min and max propagate NaN and take -0 for less than +0. All
// implementations give the same bits: a NaN that comes out of add, multiply,
// min or max is always the same
// quiet one.
struct SumKernels {
  // "scalar", "avx2", "avx512".
  const char* name;

  // accumulator = wire
  void (*store)(DType dtype, void* accumulator, const void* wire, size_t count);
  // accumulator += wire
  void (*add)(DType dtype, void* accumulator, const void* wire, size_t count);
  void (*multiply)(DType dtype, void* accumulator, const void* wire, size_t count);
  void (*min)(DType dtype, void* accumulator, const void* wire, size_t count);
  void (*max)(DType dtype, void* accumulator, const void* wire, size_t count);
  // wire = accumulator / divisor, divided before rounding to the wire type (round to nearest, ties
  // to even); divisor 1 only converts. Integer types: divisor must be 1. `wire` may be
  // `accumulator` when the types are the same.
  void (*finish)(DType dtype, void* wire, const void* accumulator, size_t count, double divisor);
};

// The best one for this CPU, or the one that ForceSumKernels chose.
const SumKernels& ActiveSumKernels();

// Every implementation that this CPU can run, scalar first.
std::vector<const SumKernels*> AvailableSumKernels();

// For tests and comparisons; false if this CPU cannot run it or the name is unknown. Not
// thread-safe with running sums.
bool ForceSumKernels(const std::string& name);

}  // namespace byteps

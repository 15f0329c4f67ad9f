// Kernels for any CPU; the compiler may still vectorize them for the baseline instruction set.
#include "cc/sum/loops.h"

namespace byteps::sum_internal {

const SumKernels* ScalarKernels() {
  static constexpr SumKernels kernels = KernelsOf<ScalarLoops>::Named("scalar");
  return &kernels;
}

}  // namespace byteps::sum_internal

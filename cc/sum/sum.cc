#include "cc/sum/sum.h"

#include <atomic>

#include "cc/sum/loops.h"

namespace byteps {
namespace {

std::atomic<const SumKernels*>& Active() {
  static std::atomic<const SumKernels*> active{AvailableSumKernels().back()};
  return active;
}

}  // namespace

std::vector<const SumKernels*> AvailableSumKernels() {
  std::vector<const SumKernels*> available;
  // From the slowest to the fastest.
  for (const SumKernels* kernels : {sum_internal::ScalarKernels(), sum_internal::Avx2Kernels(),
                                    sum_internal::Avx512Kernels()}) {
    if (kernels != nullptr) available.push_back(kernels);
  }
  return available;
}

const SumKernels& ActiveSumKernels() { return *Active().load(std::memory_order_relaxed); }

bool ForceSumKernels(const std::string& name) {
  for (const SumKernels* kernels : AvailableSumKernels()) {
    if (name == kernels->name) {
      Active().store(kernels, std::memory_order_relaxed);
      return true;
    }
  }
  return false;
}

}  // namespace byteps

// Scalar loops, and the way from a DType to a typed loop. Private to sum/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "cc/sum/element.h"
#include "cc/sum/sum.h"

namespace byteps::sum_internal {

// What each kernel file offers; null if this build has no code for the instruction set or this CPU
// cannot run it.
const SumKernels* ScalarKernels();
const SumKernels* Avx2Kernels();
const SumKernels* Avx512Kernels();

// One element after the other, over elements [first, count). The vector loops end with these.
struct ScalarLoops {
  template <typename T>
  static void Store(uint8_t* accumulator, const uint8_t* wire, size_t count, size_t first = 0) {
    using A = typename Wire<T>::Accumulator;
    for (size_t i = first; i < count; ++i) {
      StoreElement<A>(accumulator + i * sizeof(A),
                      Wire<T>::ToAccumulator(LoadElement<T>(wire + i * sizeof(T))));
    }
  }

  template <Operation operation, typename T>
  static void Accumulate(uint8_t* accumulator, const uint8_t* wire, size_t count,
                         size_t first = 0) {
    using A = typename Wire<T>::Accumulator;
    for (size_t i = first; i < count; ++i) {
      const A old = LoadElement<A>(accumulator + i * sizeof(A));
      const A value = Wire<T>::ToAccumulator(LoadElement<T>(wire + i * sizeof(T)));
      StoreElement<A>(accumulator + i * sizeof(A), Combine<operation>(old, value));
    }
  }

  template <typename T>
  static void Finish(uint8_t* wire, const uint8_t* accumulator, size_t count,
                     typename Wire<T>::Accumulator divisor, size_t first = 0) {
    using A = typename Wire<T>::Accumulator;
    for (size_t i = first; i < count; ++i) {
      A value = LoadElement<A>(accumulator + i * sizeof(A));
      if (divisor != A{1}) value = value / divisor;
      StoreElement<T>(wire + i * sizeof(T), Wire<T>::FromAccumulator(value));
    }
  }
};

// Calls visitor.Visit<T>() with the wire type of `dtype`.
template <typename Visitor>
inline void VisitType(DType dtype, const Visitor& visitor) {
  switch (dtype) {
    case DType::kFloat32: return visitor.template Visit<float>();
    case DType::kFloat64: return visitor.template Visit<double>();
    case DType::kFloat16: return visitor.template Visit<Half>();
    case DType::kBFloat16: return visitor.template Visit<BFloat16>();
    case DType::kInt8: return visitor.template Visit<int8_t>();
    case DType::kUInt8: return visitor.template Visit<uint8_t>();
    case DType::kInt32: return visitor.template Visit<int32_t>();
    case DType::kInt64: return visitor.template Visit<int64_t>();
  }
}

template <typename Loops>
struct StoreVisitor {
  uint8_t* accumulator;
  const uint8_t* wire;
  size_t count;
  template <typename T>
  void Visit() const {
    if constexpr (std::is_same_v<T, typename Wire<T>::Accumulator>) {
      if (count > 0) std::memcpy(accumulator, wire, count * sizeof(T));
    } else {
      Loops::template Store<T>(accumulator, wire, count);
    }
  }
};

template <typename Loops, Operation operation>
struct AccumulateVisitor {
  uint8_t* accumulator;
  const uint8_t* wire;
  size_t count;
  template <typename T>
  void Visit() const {
    Loops::template Accumulate<operation, T>(accumulator, wire, count);
  }
};

template <typename Loops>
struct FinishVisitor {
  uint8_t* wire;
  const uint8_t* accumulator;
  size_t count;
  double divisor;
  template <typename T>
  void Visit() const {
    using A = typename Wire<T>::Accumulator;
    const bool only_copies = std::is_same_v<T, A> && (divisor == 1 || !std::is_floating_point_v<A>);
    if (!only_copies)
      return Loops::template Finish<T>(wire, accumulator, count, static_cast<A>(divisor));
    if (count > 0 && wire != accumulator) std::memcpy(wire, accumulator, count * sizeof(T));
  }
};

// The SumKernels of a class with the loops Store, Accumulate and Finish.
template <typename Loops>
struct KernelsOf {
  static void Store(DType dtype, void* accumulator, const void* wire, size_t count) {
    VisitType(dtype, StoreVisitor<Loops>{Bytes(accumulator), Bytes(wire), count});
  }
  template <Operation operation>
  static void Accumulate(DType dtype, void* accumulator, const void* wire, size_t count) {
    VisitType(dtype, AccumulateVisitor<Loops, operation>{Bytes(accumulator), Bytes(wire), count});
  }
  static void Finish(DType dtype, void* wire, const void* accumulator, size_t count,
                     double divisor) {
    VisitType(dtype, FinishVisitor<Loops>{Bytes(wire), Bytes(accumulator), count, divisor});
  }
  static constexpr SumKernels Named(const char* name) {
    return {name,
            &Store,
            &Accumulate<Operation::kAdd>,
            &Accumulate<Operation::kMultiply>,
            &Accumulate<Operation::kMin>,
            &Accumulate<Operation::kMax>,
            &Finish};
  }

 private:
  static uint8_t* Bytes(void* memory) { return static_cast<uint8_t*>(memory); }
  static const uint8_t* Bytes(const void* memory) { return static_cast<const uint8_t*>(memory); }
};

}  // namespace byteps::sum_internal

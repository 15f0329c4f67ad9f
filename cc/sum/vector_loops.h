// Vector loops over an instruction set `Isa`, written with the compilers' vector types, which have
// the usual operators.
//
// Included by a kernel file inside a region compiled for its instruction set, so it includes
// nothing itself: a library function instantiated in such a region could be the copy that the
// linker keeps for CPUs without the instructions. `Isa` has kBytes, the width of a vector, and
//   FloatVector LoadHalf(const uint8_t*), void StoreHalf(uint8_t*, FloatVector), both on kBytes / 4
//   elements.
// No include guard: the including file gives it a namespace of its own.

template <typename T, size_t kBytes>
struct VectorOf {
  typedef T Type __attribute__((vector_size(kBytes)));
};

template <typename T, size_t kLanes>
using Vector = typename VectorOf<T, kLanes * sizeof(T)>::Type;

template <typename V>
inline V LoadVector(const uint8_t* from) {
  V vector;
  __builtin_memcpy(&vector, from, sizeof(vector));
  return vector;
}
template <typename V>
inline void StoreVector(uint8_t* to, V vector) {
  __builtin_memcpy(to, &vector, sizeof(vector));
}

// Vectors that hold kLanes accumulators of wire type T.
template <typename Isa, typename T>
struct Lanes {
  using A = typename Wire<T>::Accumulator;
  static constexpr size_t kLanes = Isa::kBytes / sizeof(A);
  using V = Vector<A, kLanes>;
  static V Load(const uint8_t* wire) { return LoadVector<V>(wire); }
  static void Save(uint8_t* wire, V value) { StoreVector<V>(wire, value); }
};

template <typename Isa>
struct Lanes<Isa, Half> {
  using A = float;
  static constexpr size_t kLanes = Isa::kBytes / sizeof(A);
  using V = Vector<A, kLanes>;
  static V Load(const uint8_t* wire) { return Isa::LoadHalf(wire); }
  static void Save(uint8_t* wire, V value) { Isa::StoreHalf(wire, value); }
};

template <typename Isa>
struct Lanes<Isa, BFloat16> {
  using A = float;
  static constexpr size_t kLanes = Isa::kBytes / sizeof(A);
  using V = Vector<A, kLanes>;
  using Bits = Vector<uint32_t, kLanes>;
  using Narrow = Vector<uint16_t, kLanes>;
  static V Load(const uint8_t* wire) {
    return (V)(__builtin_convertvector(LoadVector<Narrow>(wire), Bits) << 16);
  }
  static void Save(uint8_t* wire, V value) {
    const Bits bits = (Bits)value;
    const Bits rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
    const Bits quieted = bits >> 16 | 0x40;
    StoreVector<Narrow>(wire, __builtin_convertvector(value != value ? quieted : rounded, Narrow));
  }
};

template <Operation operation, typename A, typename V>
inline V CombineVectors(V a, V b) {
  using U = Vector<Unsigned<A>, sizeof(V) / sizeof(A)>;
  if constexpr (operation == Operation::kAdd && std::is_floating_point_v<A>) {
    const V sum = a + b;
    return sum != sum ? V{} + QuietNaN<A>() : sum;
  } else if constexpr (operation == Operation::kAdd) {
    return (V)((U)a + (U)b);
  } else if constexpr (operation == Operation::kMultiply && std::is_floating_point_v<A>) {
    const V product = a * b;
    return product != product ? V{} + QuietNaN<A>() : product;
  } else if constexpr (operation == Operation::kMultiply) {
    return (V)((U)a * (U)b);
  } else if constexpr (std::is_floating_point_v<A>) {
    // Equal numbers have equal bits, but for zeros: there OR makes -0, the smaller one, and AND
    // makes +0.
    const V equal = (V)(operation == Operation::kMin ? (U)a | (U)b : (U)a & (U)b);
    const V unequal = operation == Operation::kMin ? (a < b ? a : b) : (a < b ? b : a);
    const V result = a == b ? equal : unequal;
    return ((a != a) | (b != b)) ? V{} + QuietNaN<A>() : result;
  } else {
    return operation == Operation::kMin ? (a < b ? a : b) : (a < b ? b : a);
  }
}

template <typename Isa>
struct VectorLoops {
  template <typename T>
  static void Store(uint8_t* accumulator, const uint8_t* wire, size_t count) {
    using L = Lanes<Isa, T>;
    size_t i = 0;
    for (; i + L::kLanes <= count; i += L::kLanes) {
      StoreVector(accumulator + i * sizeof(typename L::A), L::Load(wire + i * sizeof(T)));
    }
    ScalarLoops::Store<T>(accumulator, wire, count, i);
  }

  template <Operation operation, typename T>
  static void Accumulate(uint8_t* accumulator, const uint8_t* wire, size_t count) {
    using L = Lanes<Isa, T>;
    using A = typename L::A;
    size_t i = 0;
    for (; i + L::kLanes <= count; i += L::kLanes) {
      uint8_t* place = accumulator + i * sizeof(A);
      const auto old = LoadVector<typename L::V>(place);
      StoreVector(place, CombineVectors<operation, A>(old, L::Load(wire + i * sizeof(T))));
    }
    ScalarLoops::Accumulate<operation, T>(accumulator, wire, count, i);
  }

  template <typename T>
  static void Finish(uint8_t* wire, const uint8_t* accumulator, size_t count,
                     typename Wire<T>::Accumulator divisor) {
    using L = Lanes<Isa, T>;
    using A = typename L::A;
    size_t i = 0;
    for (; i + L::kLanes <= count; i += L::kLanes) {
      auto value = LoadVector<typename L::V>(accumulator + i * sizeof(A));
      if (divisor != A{1}) value = value / divisor;
      L::Save(wire + i * sizeof(T), value);
    }
    ScalarLoops::Finish<T>(wire, accumulator, count, divisor, i);
  }
};

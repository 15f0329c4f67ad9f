// Arithmetic on single elements: what a sum, a minimum and a conversion mean. The scalar kernels
// are loops over these functions, the vector kernels use them for tails and must agree with them to
// the last bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

namespace byteps::sum_internal {

enum class Operation { kAdd, kMultiply, kMin, kMax };

struct Half {
  uint16_t bits;
};
struct BFloat16 {
  uint16_t bits;
};

template <typename To, typename From>
inline To BitCast(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  std::memcpy(&to, &from, sizeof(to));
  return to;
}

// Operations on NaN give this one NaN, so that neither the order of arrival nor the kernel shows in
// the result.
template <typename T>
inline T QuietNaN() {
  if constexpr (sizeof(T) == 4) {
    return BitCast<T>(uint32_t{0x7fc00000});
  } else {
    return BitCast<T>(uint64_t{0x7ff8000000000000});
  }
}

// Exact; a NaN keeps its leading payload bits and becomes quiet, as F16C does it.
inline float HalfToFloat(Half half) {
  const uint32_t sign = static_cast<uint32_t>(half.bits & 0x8000) << 16;
  const uint32_t exponent = (half.bits >> 10) & 0x1f;
  const uint32_t mantissa = half.bits & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in float
    return BitCast<float>(BitCast<uint32_t>(static_cast<float>(mantissa) * 0x1p-24f) | sign);
  }
  if (exponent == 0x1f) {
    const uint32_t quiet = mantissa != 0 ? 0x400000 : 0;
    return BitCast<float>(sign | 0x7f800000 | quiet | mantissa << 13);
  }
  return BitCast<float>(sign | (exponent + 112) << 23 | mantissa << 13);
}

// Drops the low `shift` bits, rounding to nearest, ties to even. The carry may run into an exponent
// above: that is right.
inline uint32_t RoundShift(uint32_t value, uint32_t shift) {
  const uint32_t odd = (value >> shift) & 1;
  return (value + (uint32_t{1} << (shift - 1)) - 1 + odd) >> shift;
}

inline Half FloatToHalf(float value) {
  const uint32_t bits = BitCast<uint32_t>(value);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  uint32_t half;
  if (magnitude > 0x7f800000) {  // NaN
    half = 0x7e00 | (magnitude >> 13 & 0x3ff);
  } else if (magnitude >= 0x47800000) {  // 2^16 and more: infinity
    half = 0x7c00;
  } else if (magnitude >=
             0x38800000) {  // 2^-14 and more: normal; 65520 and more round up to infinity
    half = RoundShift(magnitude - (uint32_t{112} << 23), 13);
  } else if (magnitude >= 0x33000000) {  // 2^-25 and more: subnormal, in steps of 2^-24
    half = RoundShift((magnitude & 0x7fffff) | 0x800000, 126 - (magnitude >> 23));
  } else {
    half = 0;
  }
  return Half{static_cast<uint16_t>(sign | half)};
}

inline float BFloat16ToFloat(BFloat16 value) {
  return BitCast<float>(static_cast<uint32_t>(value.bits) << 16);
}

inline BFloat16 FloatToBFloat16(float value) {
  const uint32_t bits = BitCast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return BFloat16{static_cast<uint16_t>(bits >> 16 | 0x40)};
  return BFloat16{static_cast<uint16_t>(RoundShift(bits, 16))};
}

// What a wire type is summed in, and the way there and back.
template <typename T>
struct Wire {
  using Accumulator = T;
  static T ToAccumulator(T value) { return value; }
  static T FromAccumulator(T value) { return value; }
};
template <>
struct Wire<Half> {
  using Accumulator = float;
  static float ToAccumulator(Half value) { return HalfToFloat(value); }
  static Half FromAccumulator(float value) { return FloatToHalf(value); }
};
template <>
struct Wire<BFloat16> {
  using Accumulator = float;
  static float ToAccumulator(BFloat16 value) { return BFloat16ToFloat(value); }
  static BFloat16 FromAccumulator(float value) { return FloatToBFloat16(value); }
};

// Unsigned integer of T's size.
template <size_t kBytes>
struct UnsignedOf;
template <>
struct UnsignedOf<1> {
  using Type = uint8_t;
};
template <>
struct UnsignedOf<2> {
  using Type = uint16_t;
};
template <>
struct UnsignedOf<4> {
  using Type = uint32_t;
};
template <>
struct UnsignedOf<8> {
  using Type = uint64_t;
};
template <typename T>
using Unsigned = typename UnsignedOf<sizeof(T)>::Type;

// -0 is less than +0, whichever came first.
template <Operation operation, typename T>
inline T CombineFloating(T a, T b) {
  if (operation == Operation::kAdd || operation == Operation::kMultiply) {
    const T result = operation == Operation::kAdd ? a + b : a * b;
    return result != result ? QuietNaN<T>() : result;
  }
  if (a != a || b != b) return QuietNaN<T>();
  if (a == b) {
    const Unsigned<T> x = BitCast<Unsigned<T>>(a), y = BitCast<Unsigned<T>>(b);
    return BitCast<T>(operation == Operation::kMin ? x | y : x & y);
  }
  return (operation == Operation::kMin) == (a < b) ? a : b;
}

template <Operation operation, typename T>
inline T Combine(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return CombineFloating<operation>(a, b);
  } else if constexpr (operation == Operation::kAdd) {
    // Unsigned arithmetic wraps; signed overflow would be undefined.
    return static_cast<T>(
        static_cast<Unsigned<T>>(static_cast<Unsigned<T>>(a) + static_cast<Unsigned<T>>(b)));
  } else if constexpr (operation == Operation::kMultiply) {
    // Wraps. Narrower unsigned integers would be promoted to int, whose overflow is undefined.
    return static_cast<T>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  } else {
    return (operation == Operation::kMin) == (a < b) ? a : b;
  }
}

// Elements may lie at any address.
template <typename T>
inline T LoadElement(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
template <typename T>
inline void StoreElement(uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

}  // namespace byteps::sum_internal

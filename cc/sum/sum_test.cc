// Every kernel that this CPU can run, forced in turn, against reference code that shares nothing
// with the kernels.
#include "cc/sum/sum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

namespace byteps {
namespace {

constexpr DType kAllDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                                DType::kInt8,    DType::kUInt8,   DType::kInt32,   DType::kInt64};

// ---- Reference: 16-bit floats by arithmetic instead of bit patterns. ----

struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
};
constexpr SmallFloat kHalf = {5, 10};
constexpr SmallFloat kBFloat16 = {8, 7};

double Decode(SmallFloat format, uint16_t bits) {
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  const int mantissa = bits & ((1 << format.mantissa_bits) - 1);
  const int exponent = (bits >> format.mantissa_bits) & ((1 << format.exponent_bits) - 1);
  const double sign = bits & 0x8000 ? -1.0 : 1.0;
  if (exponent == (1 << format.exponent_bits) - 1) {
    return mantissa == 0 ? sign * INFINITY : std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - format.mantissa_bits);
  return sign *
         std::ldexp(mantissa + (1 << format.mantissa_bits), exponent - bias - format.mantissa_bits);
}

// Nearest value, ties to even, by measuring in units of the last place.
uint16_t Encode(SmallFloat format, double value) {
  const uint16_t infinity = ((1 << format.exponent_bits) - 1) << format.mantissa_bits;
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return sign | infinity | 1 << (format.mantissa_bits - 1);
  value = std::fabs(value);
  if (value == 0) return sign;
  if (std::isinf(value)) return sign | infinity;
  const int bias = (1 << (format.exponent_bits - 1)) - 1;
  int exponent = std::max(std::ilogb(value), 1 - bias);
  const double units = std::ldexp(value, format.mantissa_bits - exponent);
  const long long rounded = std::llrint(units);  // the default rounding mode: ties to even
  long long bits = rounded + (static_cast<long long>(exponent + bias - 1) << format.mantissa_bits);
  return sign | static_cast<uint16_t>(std::min<long long>(bits, infinity));
}

// ---- Reference: one element at a time, in the accumulator's type. ----

template <typename A>
A ReferenceCombine(const std::string& operation, A a, A b) {
  if constexpr (std::is_floating_point_v<A>) {
    if (operation == "add") return a + b;
    if (operation == "multiply") return a * b;
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<A>::quiet_NaN();
    if (a == 0 && b == 0) {
      const bool negative = operation == "min" ? std::signbit(a) || std::signbit(b)
                                               : std::signbit(a) && std::signbit(b);
      return negative ? -A{0} : A{0};
    }
    return operation == "min" ? std::min(a, b) : std::max(a, b);
  } else {
    if (operation == "min") return std::min(a, b);
    if (operation == "max") return std::max(a, b);
    A wrapped;
    if (operation == "add")
      (void)__builtin_add_overflow(a, b, &wrapped);
    else
      (void)__builtin_mul_overflow(a, b, &wrapped);
    return wrapped;
  }
}

template <typename T>
T ReadAs(const uint8_t* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}
template <typename T>
void WriteAs(uint8_t* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

// Calls f(A{}) with the accumulator type of `dtype`.
template <typename F>
void WithAccumulatorType(DType dtype, F f) {
  switch (AccumulatorDType(dtype)) {
    case DType::kFloat32: return f(float{});
    case DType::kFloat64: return f(double{});
    case DType::kInt8: return f(int8_t{});
    case DType::kUInt8: return f(uint8_t{});
    case DType::kInt32: return f(int32_t{});
    case DType::kInt64: return f(int64_t{});
    default: FAIL() << "no accumulator type";
  }
}

template <typename A>
A FromWire(DType dtype, const uint8_t* wire) {
  if (dtype == DType::kFloat16) return static_cast<A>(Decode(kHalf, ReadAs<uint16_t>(wire)));
  if (dtype == DType::kBFloat16) return static_cast<A>(Decode(kBFloat16, ReadAs<uint16_t>(wire)));
  return ReadAs<A>(wire);
}

template <typename A>
void ToWire(DType dtype, A value, uint8_t* wire) {
  if (dtype == DType::kFloat16) {
    WriteAs<uint16_t>(wire, Encode(kHalf, static_cast<double>(value)));
  } else if (dtype == DType::kBFloat16) {
    WriteAs<uint16_t>(wire, Encode(kBFloat16, static_cast<double>(value)));
  } else {
    WriteAs<A>(wire, value);
  }
}

// Equal bits, or both NaN.
template <typename A>
bool Same(A a, A b) {
  if constexpr (std::is_floating_point_v<A>) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  }
  return std::memcmp(&a, &b, sizeof(A)) == 0;
}

// ---- Data. ----

// Memory that begins `offset` bytes after an aligned address and is followed by a guard pattern.
class Bytes {
 public:
  Bytes(size_t size, size_t offset)
      : size_(size), storage_(size + offset + 64, 0xa5), offset_(offset) {}
  uint8_t* data() { return storage_.data() + offset_; }
  const uint8_t* data() const { return storage_.data() + offset_; }
  size_t size() const { return size_; }
  bool GuardIntact() const {
    for (size_t i = 0; i < storage_.size(); ++i) {
      if ((i < offset_ || i >= offset_ + size_) && storage_[i] != 0xa5) return false;
    }
    return true;
  }
  bool operator==(const Bytes& other) const {
    return size_ == other.size_ && std::memcmp(data(), other.data(), size_) == 0;
  }

 private:
  size_t size_;
  std::vector<uint8_t> storage_;
  size_t offset_;
};

// Random bits: for floats all exponents, subnormals, infinities and NaNs of every kind, for
// integers overflows.
void FillRandom(Bytes* bytes, std::mt19937_64* random) {
  for (size_t i = 0; i < bytes->size(); ++i) bytes->data()[i] = static_cast<uint8_t>((*random)());
}

// Puts special values at random places.
void SprinkleSpecials(DType dtype, Bytes* wire, std::mt19937_64* random) {
  if (!IsFloating(dtype)) return;
  const size_t size = DTypeSize(dtype);
  static const double specials[] = {0.0,  -0.0,  INFINITY, -INFINITY, NAN, 1.0,
                                    -1.0, 65504, 65520,    1e-7,      3e38};
  for (size_t i = 0; i < wire->size() / size; ++i) {
    const uint64_t draw = (*random)();
    if (draw % 3 != 0) continue;
    const double value = specials[(draw >> 8) % std::size(specials)];
    WithAccumulatorType(dtype, [&](auto tag) {
      ToWire(dtype, static_cast<decltype(tag)>(value), wire->data() + i * size);
    });
  }
}

class SumTest : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override { ASSERT_TRUE(ForceSumKernels(GetParam())); }
  void TearDown() override { ASSERT_TRUE(ForceSumKernels(AvailableSumKernels().back()->name)); }

  const SumKernels& scalar() { return *AvailableSumKernels().front(); }
  const SumKernels& kernels() { return ActiveSumKernels(); }

  // store, then one operation, then finish, on `count` elements at odd addresses.
  void CheckAll(DType dtype, size_t count, size_t offset, std::mt19937_64* random) {
    for (const char* operation : {"add", "multiply", "min", "max"}) {
      for (const double divisor : {1.0, 3.0}) {
        SCOPED_TRACE(std::string(DTypeName(dtype)) + " " + operation + " count " +
                     std::to_string(count) + " offset " + std::to_string(offset) + " divisor " +
                     std::to_string(divisor));
        if (divisor != 1 && !IsFloating(dtype)) continue;
        CheckOne(dtype, operation, divisor, count, offset, random);
        if (HasFailure()) return;
      }
    }
  }

  using Accumulate = void (*)(DType, void*, const void*, size_t);
  static Accumulate Function(const SumKernels& kernels, const std::string& operation) {
    if (operation == "add") return kernels.add;
    if (operation == "multiply") return kernels.multiply;
    return operation == "min" ? kernels.min : kernels.max;
  }

  void CheckOne(DType dtype, const std::string& operation, double divisor, size_t count,
                size_t offset, std::mt19937_64* random) {
    const size_t wire_size = DTypeSize(dtype),
                 accumulator_size = DTypeSize(AccumulatorDType(dtype));
    Bytes first(count * wire_size, offset), second(count * wire_size, offset + 1);
    FillRandom(&first, random);
    FillRandom(&second, random);
    SprinkleSpecials(dtype, &first, random);
    SprinkleSpecials(dtype, &second, random);

    Bytes accumulator(count * accumulator_size, offset + 3), result(count * wire_size, offset);
    kernels().store(dtype, accumulator.data(), first.data(), count);
    Function(kernels(), operation)(dtype, accumulator.data(), second.data(), count);
    kernels().finish(dtype, result.data(), accumulator.data(), count, divisor);
    EXPECT_TRUE(accumulator.GuardIntact() && result.GuardIntact()) << "wrote outside its memory";

    Bytes scalar_accumulator(count * accumulator_size, 0), scalar_result(count * wire_size, 0);
    scalar().store(dtype, scalar_accumulator.data(), first.data(), count);
    Function(scalar(), operation)(dtype, scalar_accumulator.data(), second.data(), count);
    scalar().finish(dtype, scalar_result.data(), scalar_accumulator.data(), count, divisor);
    EXPECT_TRUE(accumulator == scalar_accumulator && result == scalar_result)
        << "differs from scalar";

    WithAccumulatorType(dtype, [&](auto tag) {
      using A = decltype(tag);
      for (size_t i = 0; i < count; ++i) {
        const A a = FromWire<A>(dtype, first.data() + i * wire_size);
        const A b = FromWire<A>(dtype, second.data() + i * wire_size);
        const A combined = ReferenceCombine(operation, a, b);
        ASSERT_TRUE(Same(combined, ReadAs<A>(accumulator.data() + i * accumulator_size)))
            << "element " << i << ": " << +a << " and " << +b << " gave "
            << +ReadAs<A>(accumulator.data() + i * accumulator_size) << ", not " << +combined;
        uint8_t expected[8];
        ToWire<A>(dtype,
                  divisor == 1 ? combined : static_cast<A>(combined / static_cast<A>(divisor)),
                  expected);
        ASSERT_TRUE(
            Same(FromWire<A>(dtype, expected), FromWire<A>(dtype, result.data() + i * wire_size)))
            << "element " << i << " of the finished result, from " << +combined;
      }
    });
  }
};

TEST_P(SumTest, EveryTailLengthAtOddAddresses) {
  std::mt19937_64 random(1);
  for (const DType dtype : kAllDTypes) {
    for (size_t count = 0; count <= 130; ++count) CheckAll(dtype, count, count % 13, &random);
  }
}

TEST_P(SumTest, LargeArrays) {
  std::mt19937_64 random(2);
  for (const DType dtype : kAllDTypes) {
    for (const size_t count : {4096, 100003}) CheckAll(dtype, count, 5, &random);
  }
}

TEST_P(SumTest, HalfConversionsOfAllValues) {
  std::vector<uint16_t> all(65536);
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<uint16_t>(i);
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const SmallFloat format = dtype == DType::kFloat16 ? kHalf : kBFloat16;
    std::vector<float> accumulator(all.size());
    std::vector<uint16_t> back(all.size());
    kernels().store(dtype, accumulator.data(), all.data(), all.size());
    kernels().finish(dtype, back.data(), accumulator.data(), all.size(), 1);
    for (size_t i = 0; i < all.size(); ++i) {
      const double expected = Decode(format, all[i]);
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(accumulator[i])) << DTypeName(dtype) << " " << i;
        const uint16_t quiet = 1 << (format.mantissa_bits - 1);
        ASSERT_EQ(back[i], all[i] | quiet)
            << DTypeName(dtype) << ": a NaN keeps sign and payload, and is quiet";
      } else {
        ASSERT_TRUE(Same(static_cast<float>(expected), accumulator[i]))
            << DTypeName(dtype) << " " << i;
        ASSERT_EQ(back[i], all[i]) << DTypeName(dtype);
      }
    }
  }
}

// Between every two neighbours: the middle goes to the even one, what lies beside it to the nearer
// one.
TEST_P(SumTest, HalfRoundingBetweenAllNeighbours) {
  for (const DType dtype : {DType::kFloat16, DType::kBFloat16}) {
    const SmallFloat format = dtype == DType::kFloat16 ? kHalf : kBFloat16;
    const uint16_t infinity = Encode(format, INFINITY);
    std::vector<float> values;
    for (uint16_t bits = 0; bits < infinity; ++bits) {
      // What would follow the largest number stands in for infinity: halfway there, rounding
      // overflows.
      const double low = Decode(format, bits);
      const double step =
          bits + 1 == infinity ? low - Decode(format, bits - 1) : Decode(format, bits + 1) - low;
      const float middle = static_cast<float>(low + step / 2);
      for (const float value :
           {std::nextafterf(middle, 0), middle, std::nextafterf(middle, INFINITY)}) {
        values.push_back(value);
        values.push_back(-value);
      }
    }
    std::vector<uint16_t> rounded(values.size());
    kernels().finish(dtype, rounded.data(), values.data(), values.size(), 1);
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(rounded[i], Encode(format, values[i])) << DTypeName(dtype) << " of " << values[i];
    }
  }
}

// As integers do everywhere (protocol rule 29).
TEST_P(SumTest, IntegersWrap) {
  const auto check = [&](DType dtype, auto low, auto high) {
    std::vector<decltype(low)> accumulator(100, high), wire(100, 1);
    kernels().add(dtype, accumulator.data(), wire.data(), wire.size());
    for (const auto value : accumulator) EXPECT_EQ(value, low);
  };
  check(DType::kInt8, std::numeric_limits<int8_t>::min(), std::numeric_limits<int8_t>::max());
  check(DType::kUInt8, uint8_t{0}, std::numeric_limits<uint8_t>::max());
  check(DType::kInt32, std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max());
  check(DType::kInt64, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max());
}

TEST_P(SumTest, MinAndMaxDoNotDependOnTheOrder) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> left(40, -0.0f), right(40, 0.0f), nans(40, nan), ones(40, 1);
  const auto apply = [&](Accumulate function, std::vector<float> a, const std::vector<float>& b) {
    function(DType::kFloat32, a.data(), b.data(), a.size());
    return a;
  };
  for (const float value : apply(kernels().min, left, right)) EXPECT_TRUE(std::signbit(value));
  for (const float value : apply(kernels().min, right, left)) EXPECT_TRUE(std::signbit(value));
  for (const float value : apply(kernels().max, left, right)) EXPECT_FALSE(std::signbit(value));
  for (const float value : apply(kernels().max, right, left)) EXPECT_FALSE(std::signbit(value));
  for (const Accumulate function : {kernels().min, kernels().max}) {
    for (const float value : apply(function, nans, ones)) EXPECT_TRUE(std::isnan(value));
    for (const float value : apply(function, ones, nans)) EXPECT_TRUE(std::isnan(value));
  }
}

TEST_P(SumTest, FinishMayWriteOverTheAccumulator) {
  std::vector<double> values(77);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i);
  kernels().finish(DType::kFloat64, values.data(), values.data(), values.size(), 7);
  for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], static_cast<double>(i) / 7);
  std::vector<int32_t> integers(77, 5);
  kernels().finish(DType::kInt32, integers.data(), integers.data(), integers.size(), 1);
  EXPECT_EQ(integers, std::vector<int32_t>(77, 5));
}

// 3 * 40000 does not fit a float16, but their average does: the division comes before the rounding
// (protocol rule 29).
TEST_P(SumTest, AverageDividesBeforeRounding) {
  std::vector<uint16_t> wire(33, Encode(kHalf, 40000)), result(33);
  std::vector<float> accumulator(33);
  kernels().store(DType::kFloat16, accumulator.data(), wire.data(), wire.size());
  kernels().add(DType::kFloat16, accumulator.data(), wire.data(), wire.size());
  kernels().add(DType::kFloat16, accumulator.data(), wire.data(), wire.size());
  kernels().finish(DType::kFloat16, result.data(), accumulator.data(), wire.size(), 3);
  EXPECT_EQ(result, wire);
}

std::vector<std::string> KernelNames() {
  std::vector<std::string> names;
  for (const SumKernels* kernels : AvailableSumKernels()) names.push_back(kernels->name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Kernels, SumTest, testing::ValuesIn(KernelNames()),
                         [](const auto& info) { return info.param; });

TEST(SumDispatchTest, ScalarIsFirstAndTheBestIsActive) {
  const std::vector<std::string> names = KernelNames();
  ASSERT_FALSE(names.empty());
  EXPECT_EQ(names.front(), "scalar");
  EXPECT_EQ(ActiveSumKernels().name, names.back());
}

TEST(SumDispatchTest, AnUnknownNameChangesNothing) {
  const std::string before = ActiveSumKernels().name;
  EXPECT_FALSE(ForceSumKernels("avx1024"));
  EXPECT_FALSE(ForceSumKernels(""));
  EXPECT_EQ(ActiveSumKernels().name, before);
}

TEST(SumDispatchTest, ForcingWorks) {
  for (const std::string& name : KernelNames()) {
    EXPECT_TRUE(ForceSumKernels(name));
    EXPECT_EQ(ActiveSumKernels().name, name);
  }
}

}  // namespace
}  // namespace byteps

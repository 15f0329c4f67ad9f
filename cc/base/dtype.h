// Element types that can be summed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace byteps {

// The values travel in declarations: append only.
enum class DType : uint8_t {
  kFloat32 = 0,
  kFloat64 = 1,
  kFloat16 = 2,
  kBFloat16 = 3,
  kInt8 = 4,
  kUInt8 = 5,
  kInt32 = 6,
  kInt64 = 7,
};
inline constexpr int kDTypeCount = 8;

// Bytes of one element.
size_t DTypeSize(DType dtype);

// NumPy's and TensorFlow's name: "float32", "bfloat16", ...
const char* DTypeName(DType dtype);

// Parses such a name; false if it is not one of ours ("bool", "complex64", ...).
bool ParseDType(const std::string& name, DType* dtype);

inline bool IsFloating(DType dtype) { return dtype <= DType::kBFloat16; }

// The type in which sums are kept: float32 for float16 and bfloat16, else the type itself.
DType AccumulatorDType(DType dtype);

}  // namespace byteps

#include "cc/base/dtype.h"

namespace byteps {
namespace {

struct DTypeInfo {
  const char* name;
  size_t size;
};

// In the order of the enum.
constexpr DTypeInfo kInfo[kDTypeCount] = {
    {"float32", 4}, {"float64", 8}, {"float16", 2}, {"bfloat16", 2},
    {"int8", 1},    {"uint8", 1},   {"int32", 4},   {"int64", 8},
};

}  // namespace

size_t DTypeSize(DType dtype) { return kInfo[static_cast<int>(dtype)].size; }

const char* DTypeName(DType dtype) { return kInfo[static_cast<int>(dtype)].name; }

bool ParseDType(const std::string& name, DType* dtype) {
  for (int i = 0; i < kDTypeCount; ++i) {
    if (name == kInfo[i].name) {
      *dtype = static_cast<DType>(i);
      return true;
    }
  }
  return false;
}

DType AccumulatorDType(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16 ? DType::kFloat32 : dtype;
}

}  // namespace byteps

// What a simulated worker gives, and what may come of it: numbers of any dtype, sums that a codec
// has rounded, averages of some of the workers.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "cc/base/dtype.h"

namespace byteps {

template <typename T>
std::vector<uint8_t> BytesAs(const std::vector<float>& values) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const T value = static_cast<T>(values[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &value, sizeof(T));
  }
  return bytes;
}

template <typename T>
std::vector<float> ValuesOf(const std::vector<uint8_t>& bytes) {
  std::vector<float> values(bytes.size() / sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    values[i] = static_cast<float>(value);
  }
  return values;
}

// Of kFloat64, kInt32 or kInt64.
inline std::vector<uint8_t> BytesOf(DType dtype, const std::vector<float>& values) {
  if (dtype == DType::kFloat64) return BytesAs<double>(values);
  return dtype == DType::kInt32 ? BytesAs<int32_t>(values) : BytesAs<int64_t>(values);
}

inline std::vector<float> ValuesOf(DType dtype, const std::vector<uint8_t>& bytes) {
  if (dtype == DType::kFloat64) return ValuesOf<double>(bytes);
  return dtype == DType::kInt32 ? ValuesOf<int32_t>(bytes) : ValuesOf<int64_t>(bytes);
}

// Whether a sum may be that of `expected`, as the codec rounds it: contributions, and then the sum.
// Of others than these a round's error is in later rounds, and their rounds are not told apart.
inline bool MayBeRounded(const std::string& codec, const std::vector<float>& expected,
                         const std::vector<float>& got) {
  double tolerance = 0;  // of the largest number
  if (codec == "bf16" || codec == "int8" || codec == "auto") tolerance = 0.02;
  if (codec == "fp8") tolerance = 0.15;
  if (tolerance == 0) return got.size() == expected.size();
  double largest = 0;
  for (const float value : expected) largest = std::max<double>(largest, std::fabs(value));
  for (size_t i = 0; i < expected.size(); ++i) {
    if (i >= got.size() || std::fabs(got[i] - expected[i]) > tolerance * largest) return false;
  }
  return true;
}

// Whether `got` is the average of what at least `least` of the workers gave. Each part of a tensor
// may be that of others.
inline bool IsAverageOfSome(const std::vector<float>& given, int least, float got) {
  for (uint32_t set = 1; set < uint32_t{1} << given.size(); ++set) {
    int members = 0;
    double sum = 0;
    for (size_t worker = 0; worker < given.size(); ++worker) {
      if ((set >> worker & 1) == 0) continue;
      ++members;
      sum += given[worker];
    }
    if (members >= least && std::fabs(sum / members - got) <= 1e-5 * std::fabs(got)) return true;
  }
  return false;
}

}  // namespace byteps

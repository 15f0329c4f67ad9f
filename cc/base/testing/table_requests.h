// For tests: requests to tables, as workers make them.
#ifndef TF_BYTEPS_CC_BASE_TESTING_TABLE_REQUESTS_H_
#define TF_BYTEPS_CC_BASE_TESTING_TABLE_REQUESTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/table_request.h"

namespace byteps {

template <typename T>
void AppendBytes(const T& value, std::string* out) {
  out->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

inline std::string RequestBytes(TableRequest::Kind kind, uint64_t number,
                                const std::vector<int64_t>& indices,
                                const std::vector<float>& values = {}, double rate = 1,
                                uint32_t slot = 0) {
  std::string bytes;
  AppendBytes(static_cast<uint32_t>(kind), &bytes);
  AppendBytes(slot, &bytes);
  AppendBytes(number, &bytes);
  AppendBytes(static_cast<int64_t>(indices.size()), &bytes);
  AppendBytes(rate, &bytes);
  for (const int64_t index : indices) AppendBytes(index, &bytes);
  for (const float value : values) AppendBytes(value, &bytes);
  return bytes;
}

inline std::string MakeBytes(const TableSpec& spec) {
  std::string bytes = RequestBytes(TableRequest::Kind::kMake, 0, {});
  AppendBytes(static_cast<uint32_t>(spec.dtype == DType::kFloat64), &bytes);
  AppendBytes(static_cast<uint32_t>(spec.optimizer), &bytes);
  AppendBytes(static_cast<uint32_t>(spec.distribution), &bytes);
  AppendBytes(uint32_t{0}, &bytes);
  for (const uint64_t number : {spec.rows, spec.width, spec.block, spec.num_blocks, spec.seed})
    AppendBytes(number, &bytes);
  for (const double number : {spec.first, spec.second, spec.accumulator, spec.epsilon})
    AppendBytes(number, &bytes);
  return bytes + spec.name;
}

// 8 rows of 2 in block 1 of 3, all ones.
inline TableSpec SomeTable() {
  TableSpec spec;
  spec.rows = 8;
  spec.width = 2;
  spec.block = 1;
  spec.num_blocks = 3;
  spec.first = 1;
  spec.name = "users";
  return spec;
}

}  // namespace byteps

#endif  // TF_BYTEPS_CC_BASE_TESTING_TABLE_REQUESTS_H_

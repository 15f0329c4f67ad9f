// For tests: requests to tables, as workers make them.
#pragma once

#include <cstdint>
#include <cstring>
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
  return RequestBytes(TableRequest::Kind::kMake, 0, {}) + EncodeTableSpec(spec);
}

// A lost copy is to be filled again, by a worker that has made so many changes.
inline std::string RefillBytes(const TableSpec& spec, uint64_t number) {
  return RequestBytes(TableRequest::Kind::kRefill, number, {}) + EncodeTableSpec(spec);
}

inline std::string CopyBytes(uint64_t number, int64_t begin, uint64_t most_bytes) {
  std::string bytes = RequestBytes(TableRequest::Kind::kCopy, number, {begin});
  AppendBytes(most_bytes, &bytes);
  return bytes;
}

// `copied`: the answer to a CopyBytes that began at `begin`.
inline std::string FillBytes(uint64_t number, uint64_t begin, const std::string& copied) {
  int64_t next = 0, count = 0;
  std::memcpy(&next, copied.data(), sizeof(next));
  std::memcpy(&count, copied.data() + sizeof(next), sizeof(count));
  std::vector<int64_t> indices(count);
  if (count > 0) std::memcpy(indices.data(), copied.data() + 16, count * sizeof(int64_t));
  std::string bytes = RequestBytes(TableRequest::Kind::kFill, number, indices);
  AppendBytes(begin, &bytes);
  AppendBytes(next, &bytes);
  return bytes + copied.substr(16 + count * sizeof(int64_t));
}

// A worker that has made `number` changes may want the rows again, and none before `least`.
inline std::string MarkBytes(uint64_t number, uint64_t least) {
  std::string bytes = RequestBytes(TableRequest::Kind::kMark, number, {});
  AppendBytes(least, &bytes);
  return bytes;
}

inline std::string ResumeBytes(const TableSpec& spec, const TablePoint& point) {
  std::string bytes = RequestBytes(TableRequest::Kind::kResume, 0, {});
  AppendBytes(point.epoch, &bytes);
  AppendBytes(point.number, &bytes);
  return bytes + EncodeTableSpec(spec);
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

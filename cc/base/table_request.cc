#include "cc/base/table_request.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

namespace byteps {
namespace {

constexpr uint64_t kHeadBytes = 32;
constexpr uint64_t kNumbersAt = 80;  // the rule's, in a TableSpec
constexpr uint64_t kSpecBytes = 120;
constexpr uint64_t kMostNumbers = uint64_t{1} << 48;

template <typename T>
T ReadAt(const uint8_t* data, uint64_t offset) {
  T value;
  std::memcpy(&value, data + offset, sizeof(T));
  return value;
}

bool IsSane(const TableSpec& spec) {
  const bool fits = spec.width > 0 && spec.width <= kMostNumbers && spec.rows <= kMostNumbers &&
                    spec.rows * (1 + RowRule::kMostStates) <= kMostNumbers / spec.width;
  return fits && spec.num_blocks > 0 && spec.block < spec.num_blocks &&
         spec.num_blocks <= kMostNumbers / (spec.rows + 1) && std::isfinite(spec.first) &&
         std::isfinite(spec.second) && spec.rule.IsSane();
}

}  // namespace

bool TableSpec::SameTableAs(const TableSpec& other) const {
  return dtype == other.dtype && rule == other.rule && distribution == other.distribution &&
         rows == other.rows && width == other.width && block == other.block &&
         num_blocks == other.num_blocks && first == other.first && second == other.second &&
         name == other.name;
}

std::string TableSpec::ToString() const {
  static constexpr std::array<const char*, 4> kDistributions = {"constant", "uniform", "normal",
                                                                "truncated normal"};
  return std::string(DTypeName(dtype)) + " with " + std::to_string(rows) + " rows of " +
         std::to_string(width) + " in block " + std::to_string(block) + " of " +
         std::to_string(num_blocks) + ", " + rule.ToString() + ", " +
         kDistributions[static_cast<size_t>(distribution)] + " (" + std::to_string(first) + ", " +
         std::to_string(second) + ")";
}

Status DecodeTableRequest(const uint8_t* data, uint64_t bytes, TableRequest* request) {
  if (bytes < kHeadBytes) {
    return InvalidArgument("its " + std::to_string(bytes) + " bytes are no request to a table");
  }
  const auto kind = ReadAt<uint32_t>(data, 0);
  request->slot = ReadAt<uint32_t>(data, 4);
  request->number = ReadAt<uint64_t>(data, 8);
  const auto rows = ReadAt<int64_t>(data, 16);
  request->rate = ReadAt<double>(data, 24);
  const uint64_t most_rows = (bytes - kHeadBytes) / sizeof(int64_t);
  if (kind > static_cast<uint32_t>(TableRequest::Kind::kRelease) ||
      request->slot > RowRule::kMostStates || rows < 0 || static_cast<uint64_t>(rows) > most_rows) {
    return InvalidArgument("its " + std::to_string(bytes) + " bytes are no request of kind " +
                           std::to_string(kind) + " for " + std::to_string(rows) +
                           " rows of slot " + std::to_string(request->slot) + " of a table");
  }
  request->kind = static_cast<TableRequest::Kind>(kind);
  request->indices.resize(rows);
  if (rows > 0) std::memcpy(request->indices.data(), data + kHeadBytes, rows * sizeof(int64_t));
  const uint64_t head_bytes = kHeadBytes + rows * sizeof(int64_t);
  request->values = data + head_bytes;
  request->value_bytes = bytes - head_bytes;
  return OkStatus();
}

Status DecodeTableSpec(const TableRequest& request, TableSpec* spec) {
  const uint8_t* const data = request.values;
  const bool is_long_enough = request.value_bytes >= kSpecBytes;
  if (!is_long_enough || ReadAt<uint32_t>(data, 0) > 1 ||
      ReadAt<uint32_t>(data, 4) >= RowRule::kNumKinds || ReadAt<uint32_t>(data, 8) > 3)
    return InvalidArgument("its " + std::to_string(request.value_bytes) +
                           " bytes do not describe a table");
  spec->dtype = ReadAt<uint32_t>(data, 0) == 0 ? DType::kFloat32 : DType::kFloat64;
  spec->rule.kind = static_cast<RowRule::Kind>(ReadAt<uint32_t>(data, 4));
  spec->distribution = static_cast<TableSpec::Distribution>(ReadAt<uint32_t>(data, 8));
  spec->rows = ReadAt<uint64_t>(data, 16);
  spec->width = ReadAt<uint64_t>(data, 24);
  spec->block = ReadAt<uint64_t>(data, 32);
  spec->num_blocks = ReadAt<uint64_t>(data, 40);
  spec->seed = ReadAt<uint64_t>(data, 48);
  spec->first = ReadAt<double>(data, 56);
  spec->second = ReadAt<double>(data, 64);
  spec->rule.first_state = ReadAt<double>(data, 72);
  for (size_t i = 0; i < spec->rule.numbers.size(); ++i)
    spec->rule.numbers[i] = ReadAt<double>(data, kNumbersAt + i * sizeof(double));
  spec->name.assign(reinterpret_cast<const char*>(data) + kSpecBytes,
                    request.value_bytes - kSpecBytes);
  const bool is_agreed = ReadAt<uint32_t>(data, 12) == spec->rule.NumStates();
  if (IsSane(*spec) && is_agreed) return OkStatus();
  return InvalidArgument("it describes an impossible table: " + spec->ToString());
}

std::string EncodeTableSpec(const TableSpec& spec) {
  std::string bytes;
  const auto append = [&bytes](const auto& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  append(static_cast<uint32_t>(spec.dtype == DType::kFloat64));
  append(static_cast<uint32_t>(spec.rule.kind));
  append(static_cast<uint32_t>(spec.distribution));
  append(spec.rule.NumStates());
  for (const uint64_t number : {spec.rows, spec.width, spec.block, spec.num_blocks, spec.seed})
    append(number);
  for (const double number : {spec.first, spec.second, spec.rule.first_state}) append(number);
  for (const double number : spec.rule.numbers) append(number);
  return bytes + spec.name;
}

Status DecodeTableCopy(const TableRequest& request, const TableSpec& spec, uint64_t* begin,
                       uint64_t* most_bytes) {
  const bool is_one = request.indices.size() == 1 && request.value_bytes == sizeof(uint64_t);
  if (!is_one || request.indices[0] < 0 || static_cast<uint64_t>(request.indices[0]) >= spec.rows) {
    return InvalidArgument("it asks for a copy of no row of the block; the table is " +
                           spec.ToString());
  }
  *begin = request.indices[0];
  *most_bytes = std::min(ReadAt<uint64_t>(request.values, 0), kMostCopiedBytes);
  return OkStatus();
}

Status DecodeTableFill(const TableRequest& request, const TableSpec& spec, TableFill* fill) {
  constexpr uint64_t kFillBytes = 2 * sizeof(uint64_t);
  const uint64_t expected = kFillBytes + request.indices.size() * spec.RowBytes();
  bool is_right = request.value_bytes == expected;
  if (is_right) {
    fill->begin = ReadAt<uint64_t>(request.values, 0);
    fill->next = ReadAt<uint64_t>(request.values, sizeof(uint64_t));
    fill->rows = request.values + kFillBytes;
    is_right = fill->begin < fill->next && fill->next <= spec.rows;
  }
  auto least = static_cast<int64_t>(fill->begin);
  for (const int64_t index : request.indices) {
    is_right = is_right && index >= least && static_cast<uint64_t>(index) < fill->next;
    least = index + 1;
  }
  if (is_right) return OkStatus();
  return InvalidArgument("it fills in " + std::to_string(request.indices.size()) +
                         " rows of the block with " + std::to_string(request.value_bytes) +
                         " bytes, not in order, or outside of what it names; the table is " +
                         spec.ToString());
}

Status DecodeTableMark(const TableRequest& request, uint64_t* least_number) {
  if (request.value_bytes != sizeof(uint64_t))
    return InvalidArgument("it marks a point of a table with " +
                           std::to_string(request.value_bytes) + " bytes");
  *least_number = ReadAt<uint64_t>(request.values, 0);
  return OkStatus();
}

Status DecodeTableResume(const TableRequest& request, TableSpec* spec, TablePoint* point) {
  constexpr uint64_t kPointBytes = 2 * sizeof(uint64_t);
  if (request.value_bytes < kPointBytes)
    return InvalidArgument("its " + std::to_string(request.value_bytes) +
                           " bytes do not say where a table goes on");
  *point = {ReadAt<uint64_t>(request.values, 0), ReadAt<uint64_t>(request.values, 8)};
  TableRequest rest = request;
  rest.values += kPointBytes;
  rest.value_bytes -= kPointBytes;
  return DecodeTableSpec(rest, spec);
}

Status CheckTableRequest(const TableRequest& request, const TableSpec& spec) {
  const bool has_slot = request.slot <= spec.rule.NumStates();
  const uint64_t rows = request.indices.size();
  const uint64_t expected = request.kind == TableRequest::Kind::kRead
                                ? 0
                                : rows * spec.SlotWidth(request.slot) * DTypeSize(spec.dtype);
  if (!has_slot || request.value_bytes != expected) {
    return InvalidArgument("it has " + std::to_string(request.value_bytes) + " bytes for " +
                           std::to_string(rows) + " rows of slot " + std::to_string(request.slot) +
                           ", and the table is " + spec.ToString());
  }
  int64_t before = -1;
  for (const int64_t index : request.indices) {
    if (index < 0 || static_cast<uint64_t>(index) >= spec.rows) {
      return InvalidArgument("it asks for row " + std::to_string(index) +
                             " of the block; the table is " + spec.ToString());
    }
    if (request.IsChange() && index <= before) {
      return InvalidArgument("it has row " + std::to_string(spec.RowOf(index)) +
                             " twice, or not in order: changes have each row once, ascending");
    }
    before = index;
  }
  return OkStatus();
}

}  // namespace byteps

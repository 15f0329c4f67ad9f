#include "cc/base/coded_rows.h"

#include <limits>
#include <string>

namespace byteps {
namespace {

constexpr uint64_t kMostVarintBytes = 9;  // of 63 bits

void Append(uint64_t number, std::vector<uint8_t>* out) {
  for (; number >= 0x80; number >>= 7) out->push_back(static_cast<uint8_t>(number | 0x80));
  out->push_back(static_cast<uint8_t>(number));
}

// False at the end of the bytes, and for more than 63 bits.
bool Read(const uint8_t** next, const uint8_t* end, uint64_t* number) {
  *number = 0;
  for (uint32_t shift = 0; shift < 63 && *next != end; shift += 7) {
    const uint8_t byte = *(*next)++;
    *number |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

}  // namespace

std::vector<uint8_t> EncodeRowIndices(const std::vector<int64_t>& indices) {
  std::vector<uint8_t> out;
  out.reserve(2 * indices.size() + kMostVarintBytes);
  Append(indices.size(), &out);
  int64_t before = 0;
  for (const int64_t index : indices) {
    Append(static_cast<uint64_t>(index - before), &out);
    before = index;
  }
  return out;
}

bool CanBeCodedRows(uint64_t bytes, uint64_t rows, uint64_t row_bytes) {
  constexpr uint64_t kMost = uint64_t{1} << 48;
  if (rows > kMost || (row_bytes > 0 && rows > kMost / row_bytes)) return false;
  const uint64_t of_rows = rows * row_bytes;
  return bytes >= of_rows + rows + 1 && bytes <= of_rows + (rows + 1) * kMostVarintBytes;
}

Status DecodeRowIndices(const uint8_t* data, uint64_t bytes, uint64_t row_bytes,
                        std::vector<int64_t>* indices, uint64_t* head_bytes) {
  const uint8_t* next = data;
  const uint8_t* const end = data + bytes;
  uint64_t count = 0;
  if (!Read(&next, end, &count) || !CanBeCodedRows(bytes, count, row_bytes)) {
    return InvalidArgument("its " + std::to_string(bytes) + " bytes are no rows of " +
                           std::to_string(row_bytes) + " bytes with their indices");
  }
  indices->clear();
  indices->reserve(count);
  uint64_t index = 0;
  for (uint64_t i = 0; i < count; ++i) {
    uint64_t step = 0;
    const bool is_read = Read(&next, end, &step);
    constexpr auto kMostIndex = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    if (!is_read || (i > 0 && step == 0) || step > kMostIndex - index) {
      return InvalidArgument("the index of its row " + std::to_string(i) + " of " +
                             std::to_string(count) +
                             " is not above the one before: the indices are damaged");
    }
    index += step;
    indices->push_back(static_cast<int64_t>(index));
  }
  *head_bytes = static_cast<uint64_t>(next - data);
  if (bytes - *head_bytes == count * row_bytes) return OkStatus();
  return InvalidArgument("it has " + std::to_string(bytes - *head_bytes) + " bytes for its " +
                         std::to_string(count) + " rows of " + std::to_string(row_bytes));
}

}  // namespace byteps

// Rows of a table with their indices, as workers gather them: eight bytes of index in front of each
// row; and what all of them add up to.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "cc/base/dtype.h"
#include "cc/sum/sum.h"
#include "cc/tf/indexed_row.h"

namespace byteps {

inline constexpr uint64_t kRowIndexBytes = sizeof(int64_t);

// The rows one after the other, each behind its index.
inline std::vector<uint8_t> PackRows(const int64_t* indices, const uint8_t* rows, int64_t count,
                                     uint64_t row_bytes) {
  std::vector<uint8_t> packed(count * (kRowIndexBytes + row_bytes));
  uint8_t* next = packed.data();
  for (int64_t i = 0; i < count; ++i) {
    std::memcpy(next, &indices[i], kRowIndexBytes);
    if (row_bytes > 0) std::memcpy(next + kRowIndexBytes, rows + i * row_bytes, row_bytes);
    next += kRowIndexBytes + row_bytes;
  }
  return packed;
}

// Packed rows of all workers in rank order, by index; those of one index still in that order.
inline std::vector<IndexedRow> SortRows(const uint8_t* packed, int64_t count, uint64_t row_bytes) {
  std::vector<IndexedRow> rows(count);
  for (IndexedRow& row : rows) {
    std::memcpy(&row.index, packed, kRowIndexBytes);
    row.row = packed + kRowIndexBytes;
    packed += kRowIndexBytes + row_bytes;
  }
  SortByIndex(&rows);
  return rows;
}

inline int64_t CountIndices(const std::vector<IndexedRow>& sorted) {
  int64_t count = 0;
  for (size_t i = 0; i < sorted.size(); ++i)
    count += i == 0 || sorted[i].index != sorted[i - 1].index;
  return count;
}

// Adds up rows of one index, in rank order as servers do (server/row_sum.cc), and with their
// arithmetic: to the same bits. `indices` and `out` have room for CountIndices.
inline void AddSortedRows(const std::vector<IndexedRow>& sorted, DType dtype, uint64_t width,
                          double divisor, int64_t* indices, uint8_t* out) {
  const SumKernels& kernels = ActiveSumKernels();
  std::vector<uint8_t> sum(width * DTypeSize(AccumulatorDType(dtype)));
  for (size_t i = 0; i < sorted.size();) {
    const int64_t index = sorted[i].index;
    kernels.store(dtype, sum.data(), sorted[i].row, width);
    for (++i; i < sorted.size() && sorted[i].index == index; ++i)
      kernels.add(dtype, sum.data(), sorted[i].row, width);
    kernels.finish(dtype, out, sum.data(), width, divisor);
    *indices++ = index;
    out += width * DTypeSize(dtype);
  }
}

}  // namespace byteps

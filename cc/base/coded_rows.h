// Rows of a table with their indices, as bytes: how many there are, then the indices, of which each
// but the first is how much it is above the one before, all of these as variable-length integers (7
// bits a byte, the lowest first; the highest bit says that more follow), then the rows one after
// the other. The indices are ascending, so that most take a byte or two instead of eight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "cc/base/status.h"

namespace byteps {

// All of a table's rows are exchanged in so many blocks at most, however many servers there are.
inline constexpr int32_t kMostRowBlocks = 64;

// The block, of `num_blocks`, that a row belongs to: follows from its index alone, so that all
// workers cut alike. Rows that many workers touch are often neighbors; blocks spread them.
inline int32_t BlockOfRow(int64_t index, int32_t num_blocks) {
  uint64_t x = static_cast<uint64_t>(index) + 0x9e3779b97f4a7c15u;  // SplitMix64
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  x ^= x >> 31;
  return static_cast<int32_t>(x % static_cast<uint64_t>(num_blocks));
}

// What comes before the rows. `indices`: not negative, each once, ascending.
std::vector<uint8_t> EncodeRowIndices(const std::vector<int64_t>& indices);

// Whether `bytes` can be so many coded rows of `row_bytes` each: what a header says is checked
// before its payload comes.
bool CanBeCodedRows(uint64_t bytes, uint64_t rows, uint64_t row_bytes);

// Reads what comes before the rows of `row_bytes` each, which begin at `*head_bytes`.
// INVALID_ARGUMENT, with a text that goes on after who has sent them, if `data` is anything else
// than coded rows; nothing behind `bytes` is read.
Status DecodeRowIndices(const uint8_t* data, uint64_t bytes, uint64_t row_bytes,
                        std::vector<int64_t>* indices, uint64_t* head_bytes);

}  // namespace byteps

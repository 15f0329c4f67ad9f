// RowSlots: numbers the indices of rows in the order in which they first come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace byteps {

// A hash table with open addressing, at most half full. Not thread-safe.
class RowSlots {
 public:
  // The number of `index`, which is the next one if it has none yet. Looks at a constant number of
  // entries, on average.
  uint32_t SlotOf(int64_t index) {
    if (2 * (indices_.size() + 1) > table_.size()) Grow();
    uint32_t* const entry = Find(index);
    if (*entry == kNone) {
      *entry = static_cast<uint32_t>(indices_.size());
      indices_.push_back(index);
    }
    return *entry;
  }

  // By number.
  const std::vector<int64_t>& indices() const { return indices_; }

  // Gives the memory back.
  void Clear() {
    table_ = {};
    indices_ = {};
  }

  // Entries looked at so far, for tests.
  uint64_t probes() const { return probes_; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr size_t kLeastEntries = 64;

  uint32_t* Find(int64_t index) {
    const size_t mask = table_.size() - 1;
    // Fibonacci hashing; other bits than those that chose the block (base/coded_rows.h).
    size_t at = (static_cast<uint64_t>(index) * 0x9e3779b97f4a7c15u >> 32) & mask;
    for (;; at = (at + 1) & mask) {
      ++probes_;
      if (table_[at] == kNone || indices_[table_[at]] == index) return &table_[at];
    }
  }

  void Grow() {
    table_.assign(table_.empty() ? kLeastEntries : 2 * table_.size(), kNone);
    for (uint32_t slot = 0; slot < indices_.size(); ++slot) *Find(indices_[slot]) = slot;
  }

  std::vector<uint32_t> table_;  // a power of two
  std::vector<int64_t> indices_;
  uint64_t probes_ = 0;
};

}  // namespace byteps

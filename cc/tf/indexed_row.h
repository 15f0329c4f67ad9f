// A row of a table and its index.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace byteps {

struct IndexedRow {
  int64_t index;
  const uint8_t* row;  // in the memory of whoever received it
};

// By index; rows of one index stay in the order that they have.
inline void SortByIndex(std::vector<IndexedRow>* rows) {
  std::stable_sort(rows->begin(), rows->end(),
                   [](const IndexedRow& a, const IndexedRow& b) { return a.index < b.index; });
}

}  // namespace byteps

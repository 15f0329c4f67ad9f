// RowHistory: what the rows of a block of a table were at the points that they may go back to. It
// knows bytes of rows, but not where the rows are.
//
// Each row is kept once for each span between two points, as it was before its first change there.
// Memory: so many rows. Without points nothing is kept.
#ifndef TF_BYTEPS_CC_SERVER_STATE_ROW_HISTORY_H_
#define TF_BYTEPS_CC_SERVER_STATE_ROW_HISTORY_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cc/base/table_request.h"

namespace byteps {

// Not thread-safe: the part's mutex guards every call.
class RowHistory {
 public:
  // The rows may be wanted again as they are now.
  void Mark(const TablePoint& point) {
    if (spans_.empty() || !(spans_.back().begin == point)) spans_.push_back({point, {}, {}});
  }

  // Nobody goes back to fewer changes than these.
  void Forget(uint64_t least_number) {
    const auto is_wanted = [=](const Span& span) { return span.begin.number >= least_number; };
    spans_.erase(spans_.begin(), std::find_if(spans_.begin(), spans_.end(), is_wanted));
  }

  void Clear() { spans_.clear(); }

  // Before a row changes. `bytes`: null if it is as it was made.
  void Note(int64_t index, const uint8_t* bytes, uint64_t row_bytes) {
    if (spans_.empty()) return;
    Span& span = spans_.back();
    const auto [row, is_new] = span.rows.emplace(index, kAsMade);
    if (!is_new || bytes == nullptr) return;
    row->second = span.bytes.size();
    span.bytes.insert(span.bytes.end(), bytes, bytes + row_bytes);
  }

  // Calls `restore(index, bytes)` for each row that has changed since, until all are as they were
  // at `point`; `bytes` as for Note. Points after it are forgotten. False, and nothing happens: it
  // is none of the points.
  template <typename Restore>
  bool GoBack(const TablePoint& point, const Restore& restore) {
    const auto found = std::find_if(spans_.begin(), spans_.end(),
                                    [&](const Span& span) { return span.begin == point; });
    if (found == spans_.end()) return false;
    const size_t first = found - spans_.begin();
    for (size_t i = spans_.size(); i > first; --i) {
      const Span& span = spans_[i - 1];
      for (const auto& [index, at] : span.rows)
        restore(index, at == kAsMade ? nullptr : span.bytes.data() + at);
    }
    spans_.resize(first);
    Mark(point);
    return true;
  }

  std::vector<TablePoint> points() const {
    std::vector<TablePoint> points;
    points.reserve(spans_.size());
    for (const Span& span : spans_) points.push_back(span.begin);
    return points;
  }

 private:
  static constexpr size_t kAsMade = SIZE_MAX;
  struct Span {
    TablePoint begin;
    std::unordered_map<int64_t, size_t> rows;  // where in `bytes` each is
    std::vector<uint8_t> bytes;
  };

  std::vector<Span> spans_;  // in order
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_SERVER_STATE_ROW_HISTORY_H_

// RowHistory: what the rows of a block of a table were at the points that they may go back to. It
// knows bytes of rows, but not where the rows are.
//
// Each row is kept once for each span between two points, as it was before its first change there.
// Memory: so many rows. Without points nothing is kept.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cc/base/table_request.h"

namespace byteps {

// Not thread-safe: the part's mutex guards every call.
class RowHistory {
 public:
  // What it may come to keep of so many rows, each of so many bytes: all of them in each of the two
  // spans that have changes. Whoever has marked a point goes back at most to the one before it, and
  // makes changes only when all have marked it (docs/protocol.md, rule 40).
  static uint64_t MostBytes(uint64_t rows, uint64_t row_bytes) {
    return 2 * rows * (row_bytes + kBytesBeside);
  }

  // The rows may be wanted again as they are now.
  void Mark(const TablePoint& point) {
    if (spans_.empty() || !(spans_.back().begin() == point)) spans_.emplace_back(point);
  }

  // Nobody goes back to fewer changes than these.
  void Forget(uint64_t least_number) {
    const auto is_wanted = [=](const Span& span) { return span.begin().number >= least_number; };
    spans_.erase(spans_.begin(), std::find_if(spans_.begin(), spans_.end(), is_wanted));
  }

  void Clear() { spans_.clear(); }

  // Before a row changes. `bytes`: null if it is as it was made.
  void Note(int64_t index, const uint8_t* bytes, uint64_t row_bytes) {
    if (!spans_.empty()) spans_.back().Note(index, bytes, row_bytes);
  }

  // Calls `restore(index, bytes)` for each row that has changed since, until all are as they were
  // at `point`; `bytes` as for Note. Points after it are forgotten. False, and nothing happens: it
  // is none of the points.
  template <typename Restore>
  bool GoBack(const TablePoint& point, const Restore& restore) {
    const auto found = std::find_if(spans_.begin(), spans_.end(),
                                    [&](const Span& span) { return span.begin() == point; });
    if (found == spans_.end()) return false;
    for (auto span = spans_.end(); span != found;) {
      --span;
      for (const auto& [index, bytes] : span->rows()) restore(index, bytes);
    }
    spans_.erase(found, spans_.end());
    Mark(point);
    return true;
  }

  std::vector<TablePoint> points() const {
    std::vector<TablePoint> points;
    points.reserve(spans_.size());
    for (const Span& span : spans_) points.push_back(span.begin());
    return points;
  }

  // What it keeps.
  uint64_t bytes() const {
    uint64_t bytes = 0;
    for (const Span& span : spans_) bytes += span.bytes();
    return bytes;
  }

 private:
  // Of a row: where it is, in a map.
  static constexpr uint64_t kBytesBeside = 64;
  // Rows are kept in pieces that never move: memory that grew as a vector would be twice as much.
  static constexpr uint64_t kPieceBytes = uint64_t{64} << 10;

  // From one point to the next one.
  class Span {
   public:
    explicit Span(const TablePoint& begin) : begin_(begin) {}

    const TablePoint& begin() const { return begin_; }
    // Each with its bytes, which live as long as this object; null: it was as it was made.
    const std::unordered_map<int64_t, const uint8_t*>& rows() const { return rows_; }
    uint64_t bytes() const { return bytes_; }

    void Note(int64_t index, const uint8_t* bytes, uint64_t row_bytes) {
      const auto [row, is_new] = rows_.emplace(index, nullptr);
      if (!is_new) return;
      bytes_ += kBytesBeside;
      if (bytes == nullptr) return;
      row->second = Copy(bytes, row_bytes);
      bytes_ += row_bytes;
    }

   private:
    const uint8_t* Copy(const uint8_t* bytes, uint64_t row_bytes) {
      if (room_ < row_bytes) {
        room_ = row_bytes * std::max<uint64_t>(1, kPieceBytes / row_bytes);
        pieces_.push_back(std::unique_ptr<uint8_t[]>(new uint8_t[room_]));
        next_ = pieces_.back().get();
      }
      uint8_t* const copy = next_;
      std::memcpy(copy, bytes, row_bytes);
      next_ += row_bytes;
      room_ -= row_bytes;
      return copy;
    }

    TablePoint begin_;
    std::unordered_map<int64_t, const uint8_t*> rows_;
    std::vector<std::unique_ptr<uint8_t[]>> pieces_;
    uint8_t* next_ = nullptr;  // in the last piece, which has so much room
    uint64_t room_ = 0;
    uint64_t bytes_ = 0;
  };

  std::vector<Span> spans_;  // in order
};

}  // namespace byteps

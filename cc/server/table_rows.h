// TableRows: a block of a table in a server's memory: its rows, and what the optimizer keeps for
// them. All of it follows from what it was made with and from the changes: two servers that make
// the same changes have the same bits.
//
// A copy that is being filled is as if it ended before the first row that is not here yet: a change
// of later rows is already in them when they come.
//
// A row takes memory when it is first changed; until then it is computed when somebody reads it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/table_request.h"
#include "cc/server/buffer.h"
#include "cc/server/state/row_history.h"

namespace byteps {

// Not thread-safe: the part's mutex guards every call. Requests have passed CheckTableRequest.
class TableRows {
 public:
  // RESOURCE_EXHAUSTED, with the table's name and the bytes, if the server has not as much memory
  // left as all of its tables may come to need. `goes_back`: whether points are marked, for which
  // rows are kept once more.
  static Status New(const TableSpec& spec, bool goes_back, const AllocatedBytes& allocated,
                    std::unique_ptr<TableRows>* rows);
  ~TableRows();
  TableRows(const TableRows&) = delete;
  TableRows& operator=(const TableRows&) = delete;

  const TableSpec& spec() const { return spec_; }

  // From now on this is a copy that gets its rows anew, one after the other: only those below
  // filled() are here, and change.
  void BeginFilling();
  uint64_t filled() const { return filled_; }
  void Fill(const TableFill& fill, const std::vector<int64_t>& indices);
  // Those rows from `begin` on that have been changed, in so many bytes (one row at least). Returns
  // where the next ones begin.
  uint64_t FindCopied(uint64_t begin, uint64_t most_bytes, std::vector<int64_t>* indices) const;
  void CopyRows(const std::vector<int64_t>& indices, uint8_t* out) const;

  // Bytes of the answer to a kRead, and the answer.
  uint64_t ReadBytes(const TableRequest& request) const;
  void Read(const TableRequest& request, uint8_t* out) const;

  // Adds up the gradients of the workers, which are in rank order, and updates each row once.
  // INVALID_ARGUMENT if one is no number: then no row has changed.
  Status Update(const std::vector<TableRequest>& requests);

  // Values of one worker for some rows.
  void Write(const TableRequest& request);

  // The points that the rows can go back to (see RowHistory). A copy that is filled has none.
  void Mark(const TablePoint& point) { history_.Mark(point); }
  void Forget(uint64_t least_number);
  std::vector<TablePoint> points() const { return history_.points(); }
  // False: `point` is none of them.
  bool GoBack(const TablePoint& point);

  // Another service has them.
  void CountAmong(const AllocatedBytes& allocated);

 private:
  TableRows(const TableSpec& spec, uint64_t most_bytes, const AllocatedBytes& allocated,
            std::unique_ptr<Buffer> memory);

  template <typename T>
  T* RowAt(int64_t index) const;
  template <typename T>
  void Make(int64_t index, T* row) const;
  template <typename T>
  T* Changeable(int64_t index);
  void NoteMade(int64_t index);
  void CountBytes();
  bool IsHere(int64_t index) const { return static_cast<uint64_t>(index) < filled_; }
  template <typename T>
  void ReadAs(const TableRequest& request, T* out) const;
  template <typename T>
  Status UpdateAs(const std::vector<TableRequest>& requests);
  template <typename T>
  void WriteAs(const TableRequest& request);

  const TableSpec spec_;
  const uint64_t most_bytes_;  // that it may come to need
  AllocatedBytes allocated_;
  const std::unique_ptr<Buffer> memory_;
  std::vector<bool> is_made_;  // by row
  uint64_t filled_ = 0;        // rows below are here
  uint64_t made_bytes_ = 0;
  RowHistory history_;
  // As CountBytes has counted them last: bytes of history_, and those that it may yet need.
  uint64_t kept_bytes_ = 0, promised_bytes_ = 0;
};

}  // namespace byteps

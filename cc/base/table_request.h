// What a worker asks of a server that holds rows of a table (ExchangeKind::kTable), as bytes:
// numbers are little-endian and follow each other without gaps.
//
//   0   uint32   what is asked (TableRequest::Kind)
//   4   uint32   the slot: 0 for the weights, then one for each state that the optimizer keeps
//   8   uint64   how many changes of the table this worker has made before
//   16  int64    rows
//   24  float64  learning rate, with what else the rule multiplies steps by (cc/server/state/
//                row_updates.h); NaN: this worker's gradients are no numbers
//   32  int64    the rows' indices in the block, one each
//   then the rows' values, or of kMake and kRefill a TableSpec:
//   0   uint32   dtype: 0 float32, 1 float64
//   4   uint32   RowRule::Kind
//   8   uint32   TableSpec::Distribution
//   12  uint32   states of a row
//   16  uint64   rows of the block, numbers in a row, which block, of how many, seed
//   56  float64  the distribution's two numbers, the first state's first value, the rule's five
//                numbers
//   120 text     the table's name
//   or of kCopy:
//   0   uint64   the most bytes of rows to answer with; the only index is where to begin
//   or of kFill:
//   0   uint64   where these rows begin, and where the next ones will
//   16  then the values of those rows that have been changed, with what the optimizer keeps for
//       them; all others between are as they were made
//   or of kMark:
//   0   uint64   the number of changes below which this worker never goes back
//   or of kResume:
//   0   uint64   the epoch and the number of a TablePoint
//   16  then the TableSpec
//
// What a server answers to kCopy: an int64, where the next rows begin; an int64, how many rows
// follow; their indices; their values, with what the optimizer keeps. What it answers to kState,
// kRefill, kFill and kRelease:
//   0   int32    the server's rank
//   4   uint32   CopyState
//   8   uint64   changes that have been made; the first change that this copy has made, or will;
//                below which index its rows are here
//   32  the TableSpec, if it has rows
// What it answers to kKept: an int32, the server's rank, and then of each block that it has kept:
//   0   uint64   which block, of how many; bytes of the name; how many points it can go back to
//   32  text     the table's name
//   then of each point, as uint64: epoch, number
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/dtype.h"
#include "cc/base/row_rule.h"
#include "cc/base/status.h"

namespace byteps {

// A block of a table: the rows whose index leaves the remainder `block` when it is divided by
// `num_blocks`.
struct TableSpec {
  enum class Distribution : uint32_t { kConstant = 0, kUniform = 1, kNormal = 2, kTruncated = 3 };

  DType dtype = DType::kFloat32;
  RowRule rule;
  Distribution distribution = Distribution::kConstant;
  uint64_t rows = 0;  // of the block
  uint64_t width = 0;
  uint64_t block = 0;
  uint64_t num_blocks = 1;
  uint64_t seed = 0;
  // kConstant: the first is the value. kUniform: from, to. Otherwise mean and standard deviation;
  // kTruncated has none that is more than two of these from the mean.
  double first = 0, second = 0;
  std::string name;

  // How many numbers of a row are in a slot, where they begin, and how many there are in all slots.
  uint64_t SlotWidth(uint32_t slot) const { return slot == 0 ? width : rule.StateWidth(width); }
  uint64_t SlotBegin(uint32_t slot) const {
    return slot == 0 ? 0 : width + (slot - 1) * rule.StateWidth(width);
  }
  uint64_t RowNumbers() const { return SlotBegin(rule.NumStates() + 1); }
  uint64_t RowBytes() const { return RowNumbers() * DTypeSize(dtype); }
  // Both refuse nothing: Decode has checked that they do not overflow.
  uint64_t ByteCount() const { return rows * RowBytes(); }
  // Of the whole table.
  uint64_t RowOf(int64_t index) const { return static_cast<uint64_t>(index) * num_blocks + block; }

  // All but the seed, of which worker 0's counts.
  bool SameTableAs(const TableSpec& other) const;
  // "float32 with 4096 rows of 64 in block 0 of 2, Adagrad (epsilon 1e-07)".
  std::string ToString() const;
};

// When rows were as they can be again: in which membership epoch of an elastic job, after how many
// changes. Within an epoch no change is made twice, so that all copies had the same rows then.
struct TablePoint {
  uint64_t epoch = 0;
  uint64_t number = 0;

  bool operator==(const TablePoint& other) const {
    return epoch == other.epoch && number == other.number;
  }
};

// Refers to the bytes that it was decoded from.
struct TableRequest {
  enum class Kind : uint32_t {
    kMake = 0,    // all make the table; each worker's first change
    kRead = 1,    // some rows of a slot
    kUpdate = 2,  // gradients of some rows, each row once
    kWrite = 3,   // values of some rows of a slot, each row once
    kState = 4,   // how far this copy is
    kCopy = 5,    // rows for another copy
    kRefill = 6,  // this copy has lost its rows, and is to get them again
    kFill = 7,    // of those rows, the next ones
    kMark = 8,    // this worker may want the rows again as they are now
    kResume = 9,  // all go on with rows that servers have kept, as they were at a point
    kKept = 10,   // which blocks this server has kept from earlier epochs
    kDrop = 11,   // it needs them no more
    // This worker asks for nothing of the table any more. It may say so again.
    kRelease = 12,
  };
  Kind kind = Kind::kRead;
  uint32_t slot = 0;
  uint64_t number = 0;
  double rate = 0;
  std::vector<int64_t> indices;
  const uint8_t* values = nullptr;
  uint64_t value_bytes = 0;

  // By all workers together; anything else is one worker's own.
  bool IsChange() const { return Begins() || kind == Kind::kUpdate || kind == Kind::kWrite; }
  // A block is there only after this change.
  bool Begins() const { return kind == Kind::kMake || kind == Kind::kResume; }
};

// Of one copy of a block. kFreed: all workers have released it.
enum class CopyState : uint32_t { kNotMade = 0, kWhole = 1, kLost = 2, kFilling = 3, kFreed = 4 };

// What a kFill says of its rows.
struct TableFill {
  uint64_t begin = 0;
  uint64_t next = 0;
  const uint8_t* rows = nullptr;  // as `indices` of the request
};

// INVALID_ARGUMENT, with a text that goes on after who has sent them, if `data` is anything else
// than a request; nothing behind `bytes` is read.
Status DecodeTableRequest(const uint8_t* data, uint64_t bytes, TableRequest* request);
// The same for the values of a kMake or a kRefill.
Status DecodeTableSpec(const TableRequest& request, TableSpec* spec);
std::string EncodeTableSpec(const TableSpec& spec);
// The same for kCopy and kFill. `begin` is below the number of the table's rows, `most_bytes` at
// most kMostCopiedBytes.
constexpr uint64_t kMostCopiedBytes = uint64_t{64} << 20;
Status DecodeTableCopy(const TableRequest& request, const TableSpec& spec, uint64_t* begin,
                       uint64_t* most_bytes);
Status DecodeTableFill(const TableRequest& request, const TableSpec& spec, TableFill* fill);
// The same for kMark and kResume.
Status DecodeTableMark(const TableRequest& request, uint64_t* least_number);
Status DecodeTableResume(const TableRequest& request, TableSpec* spec, TablePoint* point);
// Whether the request is one to this table: indices, slot and number of bytes. For kRead, kUpdate
// and kWrite.
Status CheckTableRequest(const TableRequest& request, const TableSpec& spec);

}  // namespace byteps

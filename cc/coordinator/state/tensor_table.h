// TensorTable: every tensor that any worker has declared, with its parts and owners. The
// coordinator's book.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "cc/coordinator/state/placement.h"
#include "cc/wire/control.h"

namespace byteps {

// Not thread-safe.
class TensorTable {
 public:
  explicit TensorTable(const JobDescription& job);

  struct Row {
    TableEntry entry;
    uint64_t update_id = 0;  // the TableUpdate that told the servers
    bool replaced = false;   // another row has the same tensor, cut again
    bool added_by_cut = false;
  };

  // What has become of one tensor of a list. INVALID_ARGUMENT for a bad description,
  // FAILED_PRECONDITION when another name has the same key.
  struct Outcome {
    Status status;
    Row* row = nullptr;  // the table's; null after an error
    bool added = false;  // by this call
  };

  // Finds or adds the variant that each of `tensors` describes. Those added are placed together,
  // and get `update_id`.
  std::vector<Outcome> Declare(const std::vector<TensorDescription>& tensors, uint64_t update_id);

  // No part shall be longer than `part_bytes` from now on; 0: than before. `compresses`: tensors
  // with kAutoCodec have kAutoInt8Codec from now on. What is in the table stays, because rounds may
  // be in flight; tensors for which that changes anything get a new variant, returned here, for the
  // rounds after those.
  std::vector<TableEntry> CutAgain(uint64_t part_bytes, bool compresses, uint64_t update_id);

  // How many workers take part in the rounds of a key.
  int32_t NumMembers(uint64_t key) const;

  // Of a key and a variant that are in the table.
  const Row& row(const TableEntry& entry) const;

  // A server is lost: nothing is placed there any more. Whether the others can go on with its parts
  // (protocol rule 4).
  bool CanLose(int32_t server) const;
  void Lose(int32_t server);
  // It is there again, on this host, and owns nothing yet. All that it owned has moved and is
  // settled.
  void Return(int32_t server, const std::string& host);

  // Gives the parts of lost servers to the others, and those again that earlier calls have given,
  // since the last Settle. `evens_out`: other parts, too, where the loads are more even then. Of a
  // block of a table that only is the copy which has come to the server of the other one, and so
  // has no rows.
  // Returns the entries with such parts, which now have this version.
  std::vector<TableEntry> MoveParts(uint32_t version, bool evens_out = false);
  // All workers know what MoveParts has returned.
  void Settle() { settled_version_ = moved_version_; }

 private:
  using Variants = std::deque<Row>;  // of a key; rows do not move

  Outcome FindOrAdd(const TensorDescription& tensor, uint64_t update_id);
  static Outcome Find(const TensorDescription& tensor, Variants* variants);
  Status CheckParts(const TensorDescription& tensor) const;
  bool MayCutAgain(uint64_t part_bytes) const;
  void PlaceAdded(const std::vector<Outcome>& outcomes, bool (*wanted)(const Row&));
  bool IsOtherwiseNow(const TableEntry& entry) const;
  std::string CodecNow(const std::string& codec) const;
  Row* AddCutOf(Row* row, uint64_t update_id);
  // Of a key: the variant that the others follow.
  static const Row& FirstOf(const Variants& variants);

  bool MustMove(const PartPlacement& part) const;
  std::vector<TableEntry> MoveTables(uint32_t version, bool evens_out);
  const PartPlacement* OtherCopy(const Variants& copy) const;
  static const Row* TableIn(const Variants& variants);
  static bool MayMove(const Variants& variants);

  const int32_t num_workers_;
  const bool is_deterministic_;
  std::vector<bool> is_lost_;  // by server
  uint32_t moved_version_ = 0;
  uint32_t settled_version_ = 0;
  Placement placement_;
  std::map<uint64_t, Variants> rows_;  // by key
  // Keys are hashes, but what is placed one after another is sent so, and goes to servers that take
  // turns.
  std::vector<Variants*> in_order_of_declaration_;
  uint64_t num_parts_ = 0;  // of all rows
  bool compresses_ = false;
};

}  // namespace byteps

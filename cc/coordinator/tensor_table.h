// TensorTable: every tensor that any worker has declared, with its parts and owners. The
// coordinator's book.
#ifndef TF_BYTEPS_CC_COORDINATOR_TENSOR_TABLE_H_
#define TF_BYTEPS_CC_COORDINATOR_TENSOR_TABLE_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "cc/coordinator/placement.h"
#include "cc/wire/control.h"

namespace byteps {

// Not thread-safe.
class TensorTable {
 public:
  explicit TensorTable(const JobDescription& job);

  struct Row {
    TableEntry entry;
    uint64_t update_id = 0;  // the TableUpdate that told the servers
  };

  // Finds or adds the variant that `tensor` describes. A new row gets `update_id` and sets `added`.
  // INVALID_ARGUMENT for a bad description, FAILED_PRECONDITION when another name has the same key.
  Status Declare(const TensorDescription& tensor, uint64_t update_id, const Row** row, bool* added);

 private:
  const int32_t num_workers_;
  Placement placement_;
  std::unordered_map<uint64_t, std::vector<Row>> rows_;  // by key, then variant
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_COORDINATOR_TENSOR_TABLE_H_

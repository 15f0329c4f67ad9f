#include "cc/coordinator/tensor_table.h"

namespace byteps {
namespace {

// A name with so many shapes is a mistake: a counter or a batch size in the name's place.
constexpr size_t kMaxVariants = 4096;

}  // namespace

TensorTable::TensorTable(const JobDescription& job)
    : num_workers_(job.num_workers()),
      placement_(ServerShares(job.worker_hosts, job.server_hosts), job.options.part_bytes) {}

Status TensorTable::Declare(const TensorDescription& tensor, uint64_t update_id, const Row** row,
                            bool* added) {
  BYTEPS_RETURN_IF_ERROR(tensor.Validate(num_workers_));
  const uint64_t key = KeyOfName(tensor.name);
  std::vector<Row>& variants = rows_[key];
  if (!variants.empty() && variants[0].entry.tensor.name != tensor.name) {
    return FailedPrecondition("the names \"" + variants[0].entry.tensor.name + "\" and \"" +
                              tensor.name + "\" have the same 64-bit key; rename one of them");
  }
  for (const Row& known : variants) {
    if (known.entry.tensor.SameExchangeAs(tensor)) {
      *row = &known;
      *added = false;
      return OkStatus();
    }
  }
  if (variants.size() >= kMaxVariants) {
    return FailedPrecondition(
        "tensor \"" + tensor.name + "\" has been declared with " + std::to_string(variants.size()) +
        " different shapes or operations; pad it, or use " + "different names");
  }
  Row added_row;
  added_row.entry.tensor = tensor;
  added_row.entry.key = key;
  added_row.entry.variant = static_cast<uint32_t>(variants.size());
  added_row.entry.parts = placement_.Place(tensor, variants.empty() ? nullptr : &variants[0].entry);
  added_row.update_id = update_id;
  variants.push_back(std::move(added_row));
  *row = &variants.back();
  *added = true;
  return OkStatus();
}

}  // namespace byteps

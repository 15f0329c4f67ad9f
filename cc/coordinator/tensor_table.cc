#include "cc/coordinator/tensor_table.h"

#include <utility>

namespace byteps {
namespace {

// A name with so many shapes is a mistake: a counter or a batch size in the name's place.
constexpr size_t kMaxVariants = 4096;
constexpr size_t kMaxTensors = size_t{1} << 20;

}  // namespace

TensorTable::TensorTable(const JobDescription& job)
    : num_workers_(job.num_workers()),
      placement_(job.worker_hosts, job.server_hosts, job.options.part_bytes) {}

std::vector<TensorTable::Outcome> TensorTable::Declare(
    const std::vector<TensorDescription>& tensors, uint64_t update_id) {
  std::vector<Outcome> outcomes;
  for (const TensorDescription& tensor : tensors) outcomes.push_back(FindOrAdd(tensor, update_id));
  // First variants before the others, which follow them.
  PlaceAdded(outcomes, [](const Row& row) { return row.entry.variant == 0; });
  PlaceAdded(outcomes, [](const Row& row) { return row.entry.variant > 0; });
  return outcomes;
}

TensorTable::Outcome TensorTable::FindOrAdd(const TensorDescription& tensor, uint64_t update_id) {
  Outcome outcome;
  outcome.status = tensor.Validate(num_workers_);
  if (!outcome.status.ok()) return outcome;
  const uint64_t key = KeyOfName(tensor.name);
  if (rows_.size() >= kMaxTensors && rows_.count(key) == 0) {
    outcome.status = ResourceExhausted("tensor \"" + tensor.name + "\" is one too many after " +
                                       std::to_string(rows_.size()) +
                                       " others; use the same names again in each step");
    return outcome;
  }
  std::deque<Row>& variants = rows_[key];
  if (!variants.empty() && variants[0].entry.tensor.name != tensor.name) {
    outcome.status =
        FailedPrecondition("the names \"" + variants[0].entry.tensor.name + "\" and \"" +
                           tensor.name + "\" have the same 64-bit key; rename one of them");
    return outcome;
  }
  for (Row& known : variants) {
    if (!known.entry.tensor.SameExchangeAs(tensor)) continue;
    outcome.row = &known;
    return outcome;
  }
  if (variants.size() >= kMaxVariants) {
    outcome.status = FailedPrecondition(
        "tensor \"" + tensor.name + "\" has been declared with " + std::to_string(variants.size()) +
        " different shapes or operations; pad it, or use " + "different names");
    return outcome;
  }
  Row added;
  added.entry.tensor = tensor;
  added.entry.key = key;
  added.entry.variant = static_cast<uint32_t>(variants.size());
  added.update_id = update_id;
  variants.push_back(std::move(added));
  outcome.row = &variants.back();
  outcome.added = true;
  return outcome;
}

void TensorTable::PlaceAdded(const std::vector<Outcome>& outcomes, bool (*wanted)(const Row&)) {
  std::vector<Row*> rows;
  std::vector<Placement::Request> requests;
  for (const Outcome& outcome : outcomes) {
    if (!outcome.added || !wanted(*outcome.row)) continue;
    const Row& first = rows_[outcome.row->entry.key][0];
    rows.push_back(outcome.row);
    requests.push_back(
        {&outcome.row->entry.tensor, &first == outcome.row ? nullptr : &first.entry});
  }
  if (rows.empty()) return;
  std::vector<std::vector<PartPlacement>> placed = placement_.Place(requests);
  for (size_t i = 0; i < rows.size(); ++i) rows[i]->entry.parts = std::move(placed[i]);
}

}  // namespace byteps

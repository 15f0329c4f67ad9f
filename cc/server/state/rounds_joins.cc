// The part of RoundsState for workers that have joined: they have no more data. Sums get zeros from
// them, which nobody sends. What is no sum fails while anybody has joined.
#include <string>

#include "cc/server/state/rounds.h"

namespace byteps {

// One who would take part; -1: nobody.
int32_t RoundsState::FindJoined() const {
  if (departed_ == nullptr) return -1;
  for (const int32_t worker : departed_->joined) {
    if (members_.Contain(worker)) return worker;
  }
  return -1;
}

// Whose pushes of the open round will not come.
int32_t RoundsState::CountAbsentJoined() const {
  int32_t count = 0;
  if (departed_ == nullptr) return count;
  for (const int32_t worker : departed_->joined) {
    if (members_.Contain(worker) && contributions_[worker].state == State::kAbsent) ++count;
  }
  return count;
}

// OK if the round can do without the worker.
Status RoundsState::DescribeJoined(int32_t worker, const TableEntry& entry) const {
  const TensorDescription& tensor = entry.tensor;
  const bool is_sum = tensor.kind == ExchangeKind::kSum || tensor.kind == ExchangeKind::kRowSum;
  if (is_sum && tensor.backup_workers == 0 && !tensor.per_host) return OkStatus();
  return FailedPrecondition(Title(round_) + ": " + WorkerName(worker) +
                            " has joined and has no more data; until all workers have called join, "
                            "only sums and averages go on without it, and this is " +
                            tensor.ToString());
}

}  // namespace byteps

// The part of RoundsState for workers that have joined: they have no more data. Sums get zeros from
// them, which nobody sends. What is no sum fails while anybody has joined, and so does a round that
// has failed on who has joined.
#include <string>

#include "cc/server/state/rounds.h"

namespace byteps {

// Whose pushes of the open round will not come.
int32_t RoundsState::CountAbsentJoined() const {
  int32_t count = 0;
  if (departed_ == nullptr) return count;
  for (const int32_t worker : departed_->joined) {
    if (members_.Contain(worker) && contributions_[worker].state == State::kAbsent) ++count;
  }
  return count;
}

// OK if the round can do without those who would take part and have joined.
Status RoundsState::CheckJoined(const TableEntry& entry) const {
  const TensorDescription& tensor = entry.tensor;
  const bool is_sum = tensor.kind == ExchangeKind::kSum || tensor.kind == ExchangeKind::kRowSum;
  const bool can_go_on = is_sum && tensor.backup_workers == 0 && !tensor.per_host;
  if (departed_ == nullptr) return OkStatus();
  for (const int32_t worker : departed_->joined) {
    if (!members_.Contain(worker)) continue;
    const std::string who = Title(round_) + ": " + WorkerName(worker);
    if (!can_go_on) {
      return FailedPrecondition(who +
                                " has joined and has no more data; until all workers have called "
                                "join, only sums and averages go on without it, and this is " +
                                tensor.ToString());
    }
    if (HasFailedAndJoined(worker))
      return Cancelled(who + " has given it up, or its exchange has failed there, and has joined");
  }
  return OkStatus();
}

// Whether it took part in the open round until that failed there: zeros in its place would be a
// wrong sum. Its withdrawal may come later than this, over another connection.
bool RoundsState::HasFailedAndJoined(int32_t worker) const {
  const auto failed = departed_->failed.find({key_, worker});
  return failed != departed_->failed.end() && round_ < failed->second &&
         contributions_[worker].state == State::kAbsent;
}

}  // namespace byteps

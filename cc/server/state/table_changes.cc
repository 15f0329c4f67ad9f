#include "cc/server/state/table_changes.h"

#include <algorithm>

namespace byteps {

TableChanges::TableChanges(int32_t num_workers)
    : workers_(num_workers), has_released_(num_workers) {}

TableChanges::Verdict TableChanges::OnChange(int32_t worker, uint64_t number, uint64_t training) {
  if (is_lost() || number > made_) return Verdict::kLost;
  if (number < begun_) return Verdict::kMissed;
  if (number < made_) return Verdict::kIsIn;
  if (training < left_before_) return Verdict::kLeft;
  Asked& asked = workers_[worker];
  if (!asked.waits) ++num_waiting_;
  asked = {true, training};
  return num_waiting_ == static_cast<int32_t>(workers_.size()) ? Verdict::kReady : Verdict::kWait;
}

std::vector<int32_t> TableChanges::waiting() const {
  std::vector<int32_t> ranks;
  for (size_t rank = 0; rank < workers_.size(); ++rank) {
    if (workers_[rank].waits) ranks.push_back(static_cast<int32_t>(rank));
  }
  return ranks;
}

void TableChanges::Made() {
  ++made_;
  Failed();
}

void TableChanges::Failed() {
  workers_.assign(workers_.size(), {});
  num_waiting_ = 0;
}

void TableChanges::Lose() {
  if (!is_freed()) state_ = State::kLost;
  Failed();
}

void TableChanges::Refill(uint64_t number) {
  state_ = State::kFilling;
  made_ = begun_ = number + 1;
}

std::vector<int32_t> TableChanges::Leave(uint64_t training) {
  left_before_ = std::max(left_before_, training);
  std::vector<int32_t> ranks;
  for (const int32_t rank : waiting()) {
    if (workers_[rank].training >= left_before_) continue;
    workers_[rank] = {};
    --num_waiting_;
    ranks.push_back(rank);
  }
  return ranks;
}

void TableChanges::Release(int32_t worker) {
  if (has_released_[worker]) return;
  has_released_[worker] = true;
  if (num_released_++ == 0) released_by_ = worker;
  if (num_released_ == static_cast<int32_t>(workers_.size())) state_ = State::kFreed;
}

bool TableChanges::Withdraw(int32_t worker, uint64_t training) {
  // The others of a newer training do not wait for this.
  const bool is_old = std::any_of(workers_.begin(), workers_.end(), [&](const Asked& asked) {
    return asked.waits && asked.training > training;
  });
  Asked& own = workers_[worker];
  if (is_old && own.waits && own.training <= training) {
    own = {};
    --num_waiting_;
  }
  return !is_old && num_waiting_ > 0;
}

}  // namespace byteps

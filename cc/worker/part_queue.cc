#include "cc/worker/part_queue.h"

#include <algorithm>
#include <limits>

namespace byteps {
namespace {

constexpr int64_t kFirst = std::numeric_limits<int64_t>::min();  // ahead of every priority

}  // namespace

void PartQueue::Push(PartTask task) {
  const std::pair<int64_t, uint64_t> order{-int64_t{task.priority}, next_sequence_++};
  waiting_.emplace(order, std::move(task));
}

bool PartQueue::Prefer(const Exchange* exchange, uint32_t part, int32_t priority) {
  const int64_t order = -int64_t{priority};
  for (auto it = waiting_.lower_bound({order, 0}); it != waiting_.end(); ++it) {
    if (it->first.first != order) return false;
    if (it->second.exchange.get() != exchange || it->second.part != part) continue;
    PartTask task = std::move(it->second);
    waiting_.erase(it);
    waiting_.emplace(std::pair<int64_t, uint64_t>{kFirst, next_sequence_++}, std::move(task));
    return true;
  }
  return false;
}

bool PartQueue::Pop(PartTask* task) {
  if (waiting_.empty()) return false;
  const auto first = waiting_.begin();
  const uint64_t bytes = first->second.bytes;
  if (on_the_way_ > kept_back_bytes_ && on_the_way_ + bytes > credit_bytes_) return false;
  on_the_way_ += bytes;
  *task = std::move(first->second);
  waiting_.erase(first);
  return true;
}

void PartQueue::ReturnCredit(uint64_t bytes) { on_the_way_ -= std::min(bytes, on_the_way_); }

}  // namespace byteps

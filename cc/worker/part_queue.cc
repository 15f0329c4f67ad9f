#include "cc/worker/part_queue.h"

#include <algorithm>

namespace byteps {

void PartQueue::Push(PartTask task) {
  const std::pair<int64_t, uint64_t> order{-int64_t{task.priority}, next_sequence_++};
  waiting_.emplace(order, std::move(task));
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

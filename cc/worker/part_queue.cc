#include "cc/worker/part_queue.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace byteps {
namespace {

constexpr int64_t kFirst = std::numeric_limits<int64_t>::min();  // ahead of every priority

}  // namespace

void PartQueue::Push(PartTask task) {
  waiting_.emplace(Order{-int64_t{task.priority}, next_sequence_++}, std::move(task));
}

bool PartQueue::Prefer(const Exchange* exchange, uint32_t part, int32_t priority) {
  const int64_t order = -int64_t{priority};
  for (auto it = waiting_.lower_bound({order, 0}); it != waiting_.end(); ++it) {
    if (it->first.first != order) return false;
    if (it->second.exchange.get() != exchange || it->second.part != part) continue;
    if (LeavesSoon(it->first)) return true;
    PartTask task = std::move(it->second);
    waiting_.erase(it);
    waiting_.emplace(Order{kFirst, next_sequence_++}, std::move(task));
    return true;
  }
  return false;
}

bool PartQueue::LeavesSoon(const Order& order) const {
  uint64_t bytes_before = 0;
  for (auto it = waiting_.begin(); it->first < order; ++it) {
    bytes_before += it->second.bytes;
    if (bytes_before > credit_bytes_) return false;
  }
  return true;
}

void PartQueue::Rearrange(const std::function<int32_t(const PartTask&)>& priority_of) {
  std::map<Order, PartTask> before;
  before.swap(waiting_);
  for (auto& [order, task] : before) {
    task.priority = priority_of(task);
    const int64_t first = order.first == kFirst ? kFirst : -int64_t{task.priority};
    waiting_.emplace(Order{first, order.second}, std::move(task));
  }
}

bool PartQueue::Pop(PartTask* task) {
  if (waiting_.empty()) return false;
  const auto first = waiting_.begin();
  const uint64_t bytes = first->second.bytes;
  if (on_the_way_ > kept_back_bytes_ && on_the_way_ + bytes > Admitted()) return false;
  on_the_way_ += bytes;
  *task = std::move(first->second);
  waiting_.erase(first);
  return true;
}

uint64_t PartQueue::Admitted() const {
  const bool is_ahead = unanswered_ > credit_bytes_ + credit_bytes_ / 2;
  return is_ahead ? credit_bytes_ / 2 : credit_bytes_;
}

void PartQueue::RemoveIf(const std::function<bool(const PartTask&)>& matches) {
  for (auto it = waiting_.begin(); it != waiting_.end();)
    it = matches(it->second) ? waiting_.erase(it) : std::next(it);
}

void PartQueue::ReturnCredit(uint64_t bytes) { on_the_way_ -= std::min(bytes, on_the_way_); }

void PartQueue::NoteAnswered(uint64_t bytes) { unanswered_ -= std::min(bytes, unanswered_); }

}  // namespace byteps

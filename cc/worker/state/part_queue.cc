#include "cc/worker/state/part_queue.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace byteps {
namespace {

constexpr int64_t kFirst = std::numeric_limits<int64_t>::min();  // ahead of every priority

}  // namespace

void PartQueue::Push(PartTask task) {
  const Order order{-int64_t{task.priority}, next_sequence_++};
  Insert(order, std::move(task));
}

void PartQueue::Insert(const Order& order, PartTask task) {
  orders_[{task.exchange.get(), task.part}] = order;
  waiting_.emplace(order, std::move(task));
}

PartQueue::Waiting::iterator PartQueue::Erase(Waiting::iterator task) {
  orders_.erase({task->second.exchange.get(), task->second.part});
  return waiting_.erase(task);
}

bool PartQueue::Prefer(const Exchange* exchange, uint32_t part) {
  const auto found = orders_.find({exchange, part});
  if (found == orders_.end()) return false;
  const Order order = found->second;
  if (order.first == kFirst || LeavesSoon(order)) return true;
  const auto it = waiting_.find(order);
  PartTask task = std::move(it->second);
  waiting_.erase(it);
  Insert({kFirst, next_sequence_++}, std::move(task));
  return true;
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
  Waiting before;
  before.swap(waiting_);
  for (auto& [order, task] : before) {
    task.priority = priority_of(task);
    const int64_t first = order.first == kFirst ? kFirst : -int64_t{task.priority};
    Insert({first, order.second}, std::move(task));
  }
}

bool PartQueue::Pop(PartTask* task) {
  if (waiting_.empty()) return false;
  const auto first = waiting_.begin();
  const uint64_t bytes = first->second.bytes;
  const uint64_t counted = on_the_way_ - not_counted_;
  if (counted > kept_back_bytes_ && counted + bytes > Admitted()) return false;
  on_the_way_ += bytes;
  orders_.erase({first->second.exchange.get(), first->second.part});
  if (bytes > credit_bytes_) not_counted_ += bytes - credit_bytes_ / 2;
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
    it = matches(it->second) ? Erase(it) : std::next(it);
}

void PartQueue::ReturnCredit(uint64_t bytes) {
  on_the_way_ -= std::min(bytes, on_the_way_);
  not_counted_ = std::min(not_counted_, on_the_way_);
}

void PartQueue::NoteAnswered(uint64_t bytes) { unanswered_ -= std::min(bytes, unanswered_); }

}  // namespace byteps

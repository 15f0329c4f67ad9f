// PartQueue: what waits to be pushed, in the order of priority, and the credit that limits how much
// is in flight (ByteScheduler, SOSP'19, section 4; protocol rule 9).
//
// One queue for all servers: parts leave in one order, so that each server gets its share of every
// stretch of the gradients. With a queue for each server a worker's link is shared evenly by all of
// them, and those that sum more fall behind: their links idle first and are the last to end.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>

namespace byteps {

struct Exchange;

struct PartTask {
  std::shared_ptr<Exchange> exchange;
  uint32_t part = 0;
  uint64_t bytes = 0;
  int32_t priority = 0;
  uint64_t offset = 0;  // of the part's bytes, this many are at the server already
};

// Not thread-safe.
class PartQueue {
 public:
  // Of the credit the servers may keep back `kept_back_bytes`: with no more than that in flight,
  // nothing may be.
  explicit PartQueue(uint64_t credit_bytes, uint64_t kept_back_bytes = 0)
      : kept_back_bytes_(kept_back_bytes), credit_bytes_(credit_bytes) {}

  void Push(PartTask task);

  // Puts a task in front of all others but those that were put there before; whether it waits. One
  // that leaves with the next credit anyway stays where it is: with all workers' tensors in the
  // same order, overtaking would only spoil what the order gives each server.
  bool Prefer(const Exchange* exchange, uint32_t part);

  // Gives each waiting task the priority that `priority_of` says. Those that were put in front stay
  // there.
  void Rearrange(const std::function<int32_t(const PartTask&)>& priority_of);

  // Takes the first task if the credit admits it. A part that is larger than the whole credit, as
  // of a gather, waits until nothing is in flight, and then counts as half of the credit: what
  // comes later and is more urgent overtakes it in the Van, which sends it in pieces. Nothing
  // behind the first task overtakes it here, however small.
  bool Pop(PartTask* task);

  // Never lowers it.
  void RaiseCredit(uint64_t credit_bytes) { credit_bytes_ = std::max(credit_bytes_, credit_bytes); }

  void SetCredit(uint64_t credit_bytes) { credit_bytes_ = credit_bytes; }

  // The server has taken in so many bytes (or they will never be sent).
  void ReturnCredit(uint64_t bytes);

  // Of what has been sent, so many more bytes of results are to come, or have come. A worker that
  // waits for the results of one and a half times its credit is ahead of the others: what it sends
  // cannot be summed yet, and takes the servers' links from those who are behind. It is admitted
  // half of its credit until they have caught up.
  void NoteUnanswered(uint64_t bytes) { unanswered_ += bytes; }
  void NoteAnswered(uint64_t bytes);
  uint64_t unanswered() const { return unanswered_; }

  // Drops the waiting tasks for which `matches` returns true.
  void RemoveIf(const std::function<bool(const PartTask&)>& matches);

  // Drops all waiting tasks.
  void Clear() {
    waiting_.clear();
    orders_.clear();
  }

  size_t size() const { return waiting_.size(); }
  uint64_t credit_bytes() const { return credit_bytes_; }
  uint64_t bytes_on_the_way() const { return on_the_way_; }

 private:
  using Order = std::pair<int64_t, uint64_t>;  // falling priority, then the order of Push
  using PartOf = std::pair<const Exchange*, uint32_t>;
  struct HashOfPart {
    size_t operator()(const PartOf& part) const {
      return std::hash<const void*>()(part.first) * 31 + part.second;
    }
  };
  using Waiting = std::map<Order, PartTask>;

  void Insert(const Order& order, PartTask task);
  Waiting::iterator Erase(Waiting::iterator task);

  // What may be in flight.
  uint64_t Admitted() const;
  // No more than the credit's bytes are before it.
  bool LeavesSoon(const Order& order) const;

  const uint64_t kept_back_bytes_;
  uint64_t credit_bytes_;
  uint64_t on_the_way_ = 0;
  uint64_t not_counted_ = 0;  // of those: what long parts have beyond half of the credit
  uint64_t unanswered_ = 0;
  uint64_t next_sequence_ = 0;
  Waiting waiting_;
  std::unordered_map<PartOf, Order, HashOfPart> orders_;  // where each part waits
};

}  // namespace byteps

// RoundHistory: how far each worker is, and what those who are behind have still to be told.
//
// With backup workers (TensorDescription::backup_workers) a round may end before a worker has
// pushed it. Its result is kept until that worker comes: everybody gets the result of every round,
// in order. A worker may be PartOptions::max_lag rounds behind, so that no more are kept.
#pragma once

#include <cstdint>
#include <map>
#include <utility>

#include "cc/base/lowest_round.h"
#include "cc/server/state/part_sum.h"
#include "cc/wire/control.h"

namespace byteps {

// Not thread-safe.
class RoundHistory {
 public:
  struct Ended {
    const TableEntry* entry = nullptr;
    AggregationResult result;
    int64_t first_receive_time_ns = 0;  // of the contribution that was there first
    int64_t grace_begin_ns = 0;         // 0: it had no grace window
  };

  explicit RoundHistory(int32_t num_workers) : next_(num_workers) {}

  // The first round that `worker` has not been answered.
  uint64_t next(int32_t worker) const { return next_.of(worker); }

  // `worker` has been answered all rounds before `round`, or will never ask for them.
  void Advance(int32_t worker, uint64_t round) {
    next_.Advance(worker, round);
    if (!ended_.empty()) ended_.erase(ended_.begin(), ended_.lower_bound(next_.lowest()));
  }

  bool empty() const { return ended_.empty(); }

  void Keep(uint64_t round, Ended ended) { ended_[round] = std::move(ended); }

  // Null if it has not been kept.
  const Ended* Find(uint64_t round) const {
    const auto it = ended_.find(round);
    return it == ended_.end() ? nullptr : &it->second;
  }

 private:
  LowestRound next_;  // by worker
  std::map<uint64_t, Ended> ended_;
};

}  // namespace byteps

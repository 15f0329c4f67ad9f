// TableUpdates: the numbers of what the servers are told of the tensor table, and how far each has
// taken that in.
#pragma once

#include <cstdint>
#include <limits>

#include "cc/base/lowest_round.h"

namespace byteps {

// Not thread-safe.
class TableUpdates {
 public:
  explicit TableUpdates(int32_t num_servers) : acknowledged_(num_servers) {}

  // That the next update gets.
  uint64_t next_id() const { return next_id_; }
  uint64_t TakeId() { return next_id_++; }

  // Whether all servers have taken in more by that.
  bool Acknowledge(int32_t server, uint64_t update_id) {
    const uint64_t before = acknowledged_by_all();
    acknowledged_.Advance(server, update_id);
    return acknowledged_by_all() > before;
  }
  // Updates that all servers have taken in, but for those that are lost.
  uint64_t acknowledged_by_all() const { return acknowledged_.lowest(); }

  // It is lost: nobody waits for it.
  void Lose(int32_t server) { acknowledged_.Set(server, std::numeric_limits<uint64_t>::max()); }
  // It has been started again, and has no part of the tensors that there are.
  void Readmit(int32_t server) { acknowledged_.Set(server, next_id_ - 1); }

 private:
  uint64_t next_id_ = 1;
  LowestRound acknowledged_;  // by server
};

}  // namespace byteps

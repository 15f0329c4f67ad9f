// Members: which workers take part in the rounds of a tensor. Its name says so: one that begins
// with "workers{0,2-4}/" is of these workers, a process set; any other is of all workers of the
// job. Thus the names of different sets are different, and who has only a name knows its members.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/status.h"

namespace byteps {

// A value. Looking a worker up costs the logarithm of their number.
class Members {
 public:
  // All workers.
  Members() = default;

  // Those that `name` says. What is no list of ascending ranks is all workers, and refused by
  // Check.
  static Members Of(const std::string& name);

  // INVALID_ARGUMENT if `name` begins as that of a process set, and does not say which workers of
  // the job they are. Goes on after "tensor "x": ".
  static Status Check(const std::string& name, int32_t num_workers);

  bool are_all() const { return ranks_.empty(); }

  // How many they are in a job of so many workers.
  int32_t Count(int32_t num_workers) const {
    return are_all() ? num_workers : static_cast<int32_t>(ranks_.size());
  }

  bool Contain(int32_t worker) const {
    return are_all() || std::binary_search(ranks_.begin(), ranks_.end(), worker);
  }

  // The place of a member among them, from 0, in rank order.
  size_t PlaceOf(int32_t worker) const {
    if (are_all()) return worker;
    return std::lower_bound(ranks_.begin(), ranks_.end(), worker) - ranks_.begin();
  }

  // The member at a place.
  int32_t RankAt(size_t place) const {
    return are_all() ? static_cast<int32_t>(place) : ranks_[place];
  }

 private:
  std::vector<int32_t> ranks_;  // ascending; empty: all
};

}  // namespace byteps

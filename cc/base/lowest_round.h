// LowestRound: how far each of many is, and the one that is furthest behind.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace byteps {

// All are looked at once for each round that the last of them has reached, not at each step of
// anybody (protocol rule 30). Not thread-safe.
class LowestRound {
 public:
  // All begin at round 0. Of none, the lowest is the highest number.
  explicit LowestRound(size_t count)
      : rounds_(count),
        lowest_(count == 0 ? std::numeric_limits<uint64_t>::max() : 0),
        at_lowest_(count) {}

  uint64_t of(size_t who) const { return rounds_[who]; }
  uint64_t lowest() const { return lowest_; }

  // Never back.
  void Advance(size_t who, uint64_t round) {
    uint64_t& known = rounds_[who];
    if (round <= known) return;
    const bool was_lowest = known == lowest_;
    known = round;
    if (was_lowest && --at_lowest_ == 0) FindLowest();
  }

  // Also back: it begins anew.
  void Set(size_t who, uint64_t round) {
    rounds_[who] = round;
    FindLowest();
  }

 private:
  void FindLowest() {
    if (rounds_.empty()) return;
    lowest_ = *std::min_element(rounds_.begin(), rounds_.end());
    at_lowest_ = std::count(rounds_.begin(), rounds_.end(), lowest_);
  }

  std::vector<uint64_t> rounds_;
  uint64_t lowest_;
  size_t at_lowest_;  // how many are there
};

}  // namespace byteps

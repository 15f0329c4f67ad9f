// RowChoices: how the rows of a table, of which workers touch different ones, are best added up.
//
// A gather brings each worker all rows of all workers, who add them up; servers that add them up
// bring it each touched row once. Which moves fewer bytes depends on how often workers touch the
// same rows. A tensor's first rows are gathered, and decide: all workers have all of them then, and
// choose alike, for as long as the worker is in its job. Both give the same bits.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "cc/base/mutex.h"

namespace byteps {

// Thread-safe.
class RowChoices {
 public:
  // Workers of one host share its processors with the servers. With two of them a sum brings a
  // worker half as much less at the most, and servers have the work that both would have.
  static constexpr int64_t kLeastWorkersOfAHost = 3;

  // `has_links`: whether rows leave their hosts.
  explicit RowChoices(bool has_links) : has_links_(has_links) {}

  // Whether sums on servers move clearly fewer bytes, where `num_workers` have touched so many
  // rows, each of them once, and together so many different ones. Up and down, a worker has 1 + n
  // times its rows in a gather, and its rows and all different ones in a sum. On one host a sixth
  // less is enough, over links a thirtieth: workers need not sort and add all workers' rows,
  // either.
  bool PaysToSum(int64_t num_workers, int64_t rows, int64_t different_rows) const {
    if (rows == 0 || (!has_links_ && num_workers < kLeastWorkersOfAHost)) return false;
    const int64_t gathered = rows + num_workers * rows;
    const int64_t summed = rows + num_workers * different_rows;
    return has_links_ ? 30 * gathered >= 31 * summed : 10 * gathered >= 12 * summed;
  }

  // Whether servers add up the tensor's rows. Else they are gathered, and then noted.
  bool Sums(const std::string& name) const {
    MutexLock lock(mutex_);
    const auto found = sums_.find(name);
    return found != sums_.end() && found->second;
  }

  // What has been gathered. Of no rows, nothing follows.
  void Note(const std::string& name, int64_t num_workers, int64_t rows, int64_t different_rows) {
    if (rows == 0) return;
    MutexLock lock(mutex_);
    sums_.emplace(name, PaysToSum(num_workers, rows, different_rows));
  }

  // An exchange of the tensor has failed: others may not have come as far. All begin anew.
  void Forget(const std::string& name) {
    MutexLock lock(mutex_);
    sums_.erase(name);
  }

  // Of how many tensors servers add up the rows, and of how many they are gathered.
  struct Counts {
    uint64_t summed = 0, gathered = 0;
  };
  Counts counts() const {
    MutexLock lock(mutex_);
    Counts counts;
    for (const auto& [name, sums] : sums_) ++(sums ? counts.summed : counts.gathered);
    return counts;
  }

 private:
  const bool has_links_;
  mutable Mutex mutex_;
  std::map<std::string, bool> sums_ BYTEPS_GUARDED_BY(mutex_);  // by name; not there: unknown
};

}  // namespace byteps

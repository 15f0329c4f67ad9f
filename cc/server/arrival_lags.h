// ArrivalLags: whose contributions the others wait for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/server/state/served_push.h"
#include "cc/wire/control.h"

namespace byteps {

// Thread-safe.
class ArrivalLags {
 public:
  explicit ArrivalLags(int32_t num_workers) : workers_(num_workers), reported_(num_workers) {}

  void Add(const std::vector<Arrival>& arrivals) {
    if (arrivals.empty()) return;
    MutexLock lock(mutex_);
    if (workers_.size() < 2) return;
    for (const Arrival& arrival : arrivals) {
      WorkerLag& worker = workers_[arrival.worker];
      const uint64_t lag = std::max<int64_t>(0, arrival.lag_ns);  // the clock may be set
      ++worker.contributions;
      if (arrival.dropped) ++worker.dropped;
      worker.total_ns += lag;
      worker.max_ns = std::max(worker.max_ns, lag);
      const uint64_t window = std::min(worker.contributions, kRecentContributions);
      worker.recent_ns += (static_cast<int64_t>(lag) - static_cast<int64_t>(worker.recent_ns)) /
                          static_cast<int64_t>(window);
    }
  }

  // What has changed since it was taken last, of ArrivalReport::kMostRows workers at most. They
  // take turns.
  ArrivalReport TakeReport() {
    ArrivalReport report;
    MutexLock lock(mutex_);
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (report.rows.size() == ArrivalReport::kMostRows) break;
      const size_t rank = next_;
      next_ = (next_ + 1) % workers_.size();
      const WorkerLag& lag = workers_[rank];
      if (std::exchange(reported_[rank], lag.contributions) != lag.contributions)
        report.rows.push_back({static_cast<int32_t>(rank), lag});
    }
    return report;
  }

  // By rank.
  std::vector<WorkerLag> workers() const {
    MutexLock lock(mutex_);
    return workers_;
  }

 private:
  mutable Mutex mutex_;
  std::vector<WorkerLag> workers_ BYTEPS_GUARDED_BY(mutex_);
  std::vector<uint64_t> reported_ BYTEPS_GUARDED_BY(mutex_);  // contributions, by rank
  size_t next_ BYTEPS_GUARDED_BY(mutex_) = 0;                 // the rank to look at first
};

}  // namespace byteps

// ArrivalLags: whose contributions the others wait for.
#ifndef TF_BYTEPS_CC_SERVER_ARRIVAL_LAGS_H_
#define TF_BYTEPS_CC_SERVER_ARRIVAL_LAGS_H_

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <vector>

#include "cc/server/part_rounds.h"
#include "cc/wire/control.h"

namespace byteps {

// Thread-safe.
class ArrivalLags {
 public:
  explicit ArrivalLags(int32_t num_workers) : workers_(num_workers) {}

  void Add(const std::vector<Arrival>& arrivals) {
    if (arrivals.empty() || workers_.size() < 2) return;
    std::lock_guard<std::mutex> lock(mutex_);
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

  // By rank.
  std::vector<WorkerLag> workers() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return workers_;
  }

 private:
  mutable std::mutex mutex_;
  std::vector<WorkerLag> workers_;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_SERVER_ARRIVAL_LAGS_H_

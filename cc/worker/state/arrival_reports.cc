#include "cc/worker/state/arrival_reports.h"

#include <algorithm>

namespace byteps {
namespace {

constexpr size_t kMostLags = 8;  // in a line

}  // namespace

Status ArrivalReports::Take(int32_t server, const ArrivalReport& report) {
  lags_.resize(num_servers_);
  std::vector<WorkerLag>& lags = lags_[server];
  lags.resize(num_workers_);
  for (const auto& [rank, lag] : report.rows) {
    if (rank < 0 || rank >= num_workers_) {
      return Internal("server " + std::to_string(server) + " reported on worker " +
                      std::to_string(rank) + " of " + std::to_string(num_workers_));
    }
    lags[rank] = lag;
  }
  return OkStatus();
}

std::vector<WorkerLag> ArrivalReports::Lags() const {
  if (lags_.empty()) return {};
  std::vector<WorkerLag> all(num_workers_);
  std::vector<double> recent(all.size());
  for (const std::vector<WorkerLag>& lags : lags_) {
    for (size_t rank = 0; rank < lags.size(); ++rank) {
      const WorkerLag& lag = lags[rank];
      all[rank].contributions += lag.contributions;
      all[rank].dropped += lag.dropped;
      all[rank].total_ns += lag.total_ns;
      all[rank].max_ns = std::max(all[rank].max_ns, lag.max_ns);
      recent[rank] += static_cast<double>(lag.recent_ns) * static_cast<double>(lag.contributions);
    }
  }
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].contributions > 0)
      all[rank].recent_ns = static_cast<uint64_t>(recent[rank] / all[rank].contributions);
  }
  return all;
}

std::string ArrivalReports::Text() const {
  std::string text;
  const std::vector<WorkerLag> lags = Lags();
  std::vector<size_t> latest;
  for (size_t rank = 0; rank < lags.size(); ++rank) {
    if (lags[rank].contributions > 0) latest.push_back(rank);
  }
  std::stable_sort(latest.begin(), latest.end(),
                   [&](size_t a, size_t b) { return lags[a].recent_ns > lags[b].recent_ns; });
  latest.resize(std::min(latest.size(), kMostLags));
  std::sort(latest.begin(), latest.end());
  for (const size_t rank : latest) {
    text += text.empty() ? "\n  so far, after the first of each round: " : ", ";
    text += "rank " + std::to_string(rank) + " by " +
            std::to_string((lags[rank].recent_ns + 500000) / 1000000) + " ms";
  }
  return text;
}

}  // namespace byteps

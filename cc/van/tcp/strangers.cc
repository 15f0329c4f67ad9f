#include "cc/van/tcp/strangers.h"

#include <algorithm>
#include <vector>

namespace byteps {

void Strangers::Fill(Bucket* bucket, double most, double per_second, int64_t now_ns) {
  const double seconds = std::max<int64_t>(0, now_ns - bucket->filled_at_ns) / 1e9;
  bucket->level = std::min(most, bucket->level + seconds * per_second);
  bucket->filled_at_ns = now_ns;
}

// Hosts that have not failed lately are forgotten when there are many; those that come then share.
Strangers::Bucket& Strangers::BucketOf(const std::string& host, int64_t now_ns) {
  if (hosts_.size() >= kMostHosts && hosts_.count(host) == 0) {
    for (auto it = hosts_.begin(); it != hosts_.end();) {
      Fill(&it->second, kBurst, kPerSecond, now_ns);
      it = it->second.level >= kBurst ? hosts_.erase(it) : std::next(it);
    }
    if (hosts_.size() >= kMostHosts) {
      Fill(&all_others_, kBurst, kPerSecond, now_ns);
      return all_others_;
    }
  }
  const auto [it, is_new] = hosts_.try_emplace(host, Bucket{kBurst, now_ns});
  Fill(&it->second, kBurst, kPerSecond, now_ns);
  return it->second;
}

bool Strangers::MayTry(const std::string& host, int64_t now_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = hosts_.find(host);
  if (it == hosts_.end()) return true;
  Fill(&it->second, kBurst, kPerSecond, now_ns);
  return it->second.level >= 1;
}

void Strangers::Add(const std::weak_ptr<Stranger>& stranger) {
  std::vector<std::shared_ptr<Stranger>> ended;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    waiting_.push_back(stranger);
    // Most at the front have shaken hands or are gone.
    while (!waiting_.empty()) {
      const std::shared_ptr<Stranger> oldest = waiting_.front().lock();
      if (oldest != nullptr && oldest->is_stranger()) {
        if (waiting_.size() <= kMostWaiting) break;
        ended.push_back(oldest);
      }
      waiting_.pop_front();
    }
  }
  for (const auto& oldest : ended)
    oldest->EndHandshake(ResourceExhausted("too many connections without a handshake"));
}

std::string Strangers::Failed(const std::string& host, const std::string& what, int64_t now_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  Bucket& bucket = BucketOf(host, now_ns);
  bucket.level = std::max(0.0, bucket.level - 1);
  Fill(&log_, kLogBurst, kLogsPerSecond, now_ns);
  if (log_.level < 1) {
    ++not_logged_;
    return "";
  }
  log_.level -= 1;
  std::string text = what;
  if (not_logged_ > 0) text += " (" + std::to_string(not_logged_) + " more before)";
  not_logged_ = 0;
  return text;
}

}  // namespace byteps

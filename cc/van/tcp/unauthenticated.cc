#include "cc/van/tcp/unauthenticated.h"

#include <algorithm>
#include <vector>

namespace byteps {
namespace {

// Of the processor's time, whatever a busy machine has made a handshake cost: who waits has 2 s to
// connect again (van/reconnector.h).
constexpr double kMostDebtSeconds = 0.01;

// Without a lock: it is the connections' business how they end.
void End(const std::vector<std::shared_ptr<Stranger>>& strangers, const char* why) {
  for (const auto& stranger : strangers) {
    if (stranger != nullptr) stranger->EndHandshake(ResourceExhausted(why));
  }
}

}  // namespace

void UnauthenticatedConnections::Fill(Bucket* bucket, double most, double per_second,
                                      int64_t now_ns) {
  const double seconds = std::max<int64_t>(0, now_ns - bucket->filled_at_ns) / 1e9;
  bucket->level = std::min(most, bucket->level + seconds * per_second);
  bucket->filled_at_ns = now_ns;
}

// Hosts that have not failed lately are forgotten when there are many; those that come then share.
UnauthenticatedConnections::Bucket& UnauthenticatedConnections::BucketOf(const std::string& host,
                                                                         int64_t now_ns) {
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

bool UnauthenticatedConnections::HasFailedTooOften(const std::string& host, int64_t now_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = hosts_.find(host);
  if (it == hosts_.end()) return false;
  Fill(&it->second, kBurst, kPerSecond, now_ns);
  return it->second.level < 1;
}

bool UnauthenticatedConnections::HasTime(int64_t now_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  Fill(&processor_, kBurstSeconds, kShare, now_ns);
  return processor_.level > 0;
}

void UnauthenticatedConnections::Spend(double processor_seconds, int64_t now_ns) {
  std::lock_guard<std::mutex> lock(mutex_);
  Fill(&processor_, kBurstSeconds, kShare, now_ns);
  processor_.level = std::max(-kMostDebtSeconds, processor_.level - processor_seconds);
}

void UnauthenticatedConnections::Expect(size_t connections) {
  std::lock_guard<std::mutex> lock(mutex_);
  most_waiting_ = std::max(kMostWaiting, 2 * connections);
}

void UnauthenticatedConnections::Add(const std::shared_ptr<Stranger>& stranger) {
  std::vector<std::shared_ptr<Stranger>> ended;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    // Before the newcomer is one of them.
    while (places_.size() >= most_waiting_)
      ended.push_back(TakeOldest(silent_.empty() ? &greeted_ : &silent_));
    places_[stranger.get()] = {stranger, &silent_, silent_.insert(silent_.end(), stranger.get())};
  }
  End(ended, "too many connections without a handshake");
}

void UnauthenticatedConnections::HasSaidHello(Stranger* stranger) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = places_.find(stranger);
  if (it == places_.end() || it->second.list == &greeted_) return;
  greeted_.splice(greeted_.end(), silent_, it->second.at);
  it->second.list = &greeted_;
}

void UnauthenticatedConnections::Remove(Stranger* stranger) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = places_.find(stranger);
  if (it == places_.end()) return;
  it->second.list->erase(it->second.at);
  places_.erase(it);
}

void UnauthenticatedConnections::MakeRoom() {
  std::vector<std::shared_ptr<Stranger>> ended;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    for (size_t left = (silent_.size() + 1) / 2; left > 0; --left)
      ended.push_back(TakeOldest(&silent_));
  }
  End(ended, "no descriptors for connections without a handshake");
}

std::shared_ptr<Stranger> UnauthenticatedConnections::TakeOldest(std::list<Stranger*>* of) {
  const auto it = places_.find(of->front());
  const std::shared_ptr<Stranger> oldest = it->second.stranger.lock();
  of->pop_front();
  places_.erase(it);
  return oldest;
}

std::string UnauthenticatedConnections::Failed(const std::string& host, const std::string& what,
                                               int64_t now_ns) {
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

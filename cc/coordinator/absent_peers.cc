#include "cc/coordinator/absent_peers.h"

#include <algorithm>
#include <chrono>

#include "cc/base/clock.h"
#include "cc/van/van.h"
#include "cc/wire/handshake.h"

namespace byteps {
namespace {

// When somebody tries to reach a process, in seconds after its connection broke. Few, because for
// the one that listens they are strangers. The first one a little later: whoever lives is back by
// then.
constexpr double kLooks[] = {0.02, 0.1, 0.3, 0.7, 1.2, kReconnectSeconds};
constexpr int kMostLooks = sizeof(kLooks) / sizeof(kLooks[0]);
constexpr double kLookSeconds = 0.1;

}  // namespace

void AbsentPeers::Add(size_t peer, const Endpoint& listens_at) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stopping_) return;
  absent_[peer] = {listens_at, MonotonicNanos(), 0, ++next_id_};
  if (!thread_.joinable()) {
    thread_ = std::thread([this] {
      SetThreadName("byteps-absent");
      Run();
    });
  }
  changed_.notify_all();
}

void AbsentPeers::Remove(size_t peer) {
  std::lock_guard<std::mutex> lock(mutex_);
  absent_.erase(peer);
}

void AbsentPeers::Stop() {
  std::thread thread;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
    thread.swap(thread_);
  }
  changed_.notify_all();
  if (thread.joinable()) thread.join();
}

int64_t AbsentPeers::NextLook(const Absence& absence) const {
  return absence.begin_ns + SecondsToNanos(kLooks[absence.looks]);
}

void AbsentPeers::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (!stopping_) {
    if (absent_.empty()) {
      changed_.wait(lock);
      continue;
    }
    const auto next = std::min_element(
        absent_.begin(), absent_.end(),
        [this](const auto& a, const auto& b) { return NextLook(a.second) < NextLook(b.second); });
    const int64_t wait_ns = NextLook(next->second) - MonotonicNanos();
    if (wait_ns > 0) {
      changed_.wait_for(lock, std::chrono::nanoseconds(wait_ns));
      continue;
    }
    const size_t peer = next->first;
    const Absence absence = next->second;
    const bool is_over = absence.looks + 1 >= kMostLooks;
    ++next->second.looks;
    lock.unlock();
    const bool is_refused =
        absence.listens_at.port != 0 && IsRefusedAt(absence.listens_at, kLookSeconds);
    lock.lock();
    // Somebody may have come, and gone again, meanwhile.
    const auto still = absent_.find(peer);
    if (still == absent_.end() || still->second.id != absence.id) continue;
    if (!is_refused && !is_over) continue;
    absent_.erase(still);
    lock.unlock();
    on_stays_away_(peer, is_refused
                             ? "nobody listens at " + absence.listens_at.ToString() + " any more"
                             : "it did not come back within " +
                                   std::to_string(static_cast<int>(kReconnectSeconds)) + " s");
    lock.lock();
  }
}

}  // namespace byteps

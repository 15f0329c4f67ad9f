#include "cc/coordinator/absent_peers.h"

#include <algorithm>

#include "cc/base/clock.h"
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
  MutexLock lock(mutex_);
  if (stopping_) return;
  absent_[peer] = {listens_at, MonotonicNanos(), 0, ++next_id_};
  if (!thread_.joinable()) {
    thread_ = Thread("byteps-absent", [this] { Run(); });
  }
  changed_.NotifyAll();
}

void AbsentPeers::Remove(size_t peer) {
  MutexLock lock(mutex_);
  absent_.erase(peer);
}

void AbsentPeers::Stop() {
  Thread thread;
  {
    MutexLock lock(mutex_);
    stopping_ = true;
    thread.Swap(thread_);
  }
  changed_.NotifyAll();
  if (thread.joinable()) thread.Join();
}

int64_t AbsentPeers::NextLook(const Absence& absence) const {
  return absence.begin_ns + SecondsToNanos(kLooks[absence.looks]);
}

void AbsentPeers::Run() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    if (absent_.empty()) {
      changed_.Wait(mutex_);
      continue;
    }
    const auto next = std::min_element(
        absent_.begin(), absent_.end(),
        [this](const auto& a, const auto& b) { return NextLook(a.second) < NextLook(b.second); });
    const int64_t wait_ns = NextLook(next->second) - MonotonicNanos();
    if (wait_ns > 0) {
      changed_.WaitFor(mutex_, wait_ns);
      continue;
    }
    const size_t peer = next->first;
    const Absence absence = next->second;
    const bool is_over = absence.looks + 1 >= kMostLooks;
    ++next->second.looks;
    lock.Unlock();
    const bool is_refused =
        absence.listens_at.port != 0 && is_refused_at_(absence.listens_at, kLookSeconds);
    lock.Lock();
    // Somebody may have come, and gone again, meanwhile.
    const auto still = absent_.find(peer);
    if (still == absent_.end() || still->second.id != absence.id) continue;
    if (!is_refused && !is_over) continue;
    absent_.erase(still);
    lock.Unlock();
    on_stays_away_(peer, is_refused
                             ? "nobody listens at " + absence.listens_at.ToString() + " any more"
                             : "it did not come back within " +
                                   std::to_string(static_cast<int>(kReconnectSeconds)) + " s");
    lock.Lock();
  }
}

}  // namespace byteps

#include "cc/coordinator/absent_peers.h"

#include <optional>

#include "cc/base/clock.h"

namespace byteps {
namespace {

// How long one look takes at most.
constexpr double kLookSeconds = 0.1;

}  // namespace

void AbsentPeers::Add(size_t peer, const Endpoint& listens_at) {
  MutexLock lock(mutex_);
  if (stopping_) return;
  absences_.Add(peer, listens_at, MonotonicNanos());
  if (!thread_.joinable()) {
    thread_ = Thread("byteps-absent", [this] { Run(); });
  }
  changed_.NotifyAll();
}

void AbsentPeers::Remove(size_t peer) {
  MutexLock lock(mutex_);
  absences_.Remove(peer);
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

void AbsentPeers::Run() {
  MutexLock lock(mutex_);
  while (!stopping_) {
    const std::optional<int64_t> due_ns = absences_.NextLookNanos();
    if (!due_ns.has_value()) {
      changed_.Wait(mutex_);
      continue;
    }
    const int64_t wait_ns = *due_ns - MonotonicNanos();
    if (wait_ns > 0) {
      changed_.WaitFor(mutex_, wait_ns);
      continue;
    }
    const Absences::Look look = absences_.BeginLook();
    lock.Unlock();
    const bool is_refused =
        look.listens_at.port != 0 && is_refused_at_(look.listens_at, kLookSeconds);
    lock.Lock();
    const std::string why = absences_.EndLook(look, is_refused);
    if (why.empty()) continue;
    lock.Unlock();
    on_join_timeout_(look.peer, why);
    lock.Lock();
  }
}

}  // namespace byteps

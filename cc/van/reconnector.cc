#include "cc/van/reconnector.h"

#include <algorithm>
#include <utility>

#include "cc/base/backoff.h"
#include "cc/base/clock.h"
#include "cc/base/guarded.h"
#include "cc/wire/handshake.h"

namespace byteps {
namespace {

// No attempt takes longer, so that Stop does not either.
constexpr double kAttemptSeconds = 1;
constexpr int64_t kFirstPauseNanos = 20 * 1000000;
constexpr int64_t kMostPauseNanos = 200 * 1000000;
constexpr int64_t kLeastAttemptNanos = 100 * 1000000;
// So many connections in a row that were good for nothing: it is not the network.
constexpr int kMostFruitless = 100;

}  // namespace

Reconnector::Reconnector(Attempt attempt, OnLost on_lost, MayGoOn may_go_on)
    : attempt_(std::move(attempt)),
      on_lost_(std::move(on_lost)),
      may_go_on_(std::move(may_go_on)) {}

Reconnector::~Reconnector() { Stop(); }

void Reconnector::OnClosed(const Status& reason, int life) {
  if (reason.code() == StatusCode::kCancelled) return;
  MutexLock lock(mutex_);
  if (over() || life != lives_) return;
  const bool is_final = reason.code() != StatusCode::kUnavailable;
  if (is_final || ++fruitless_ > kMostFruitless) {
    lost_ = true;
    lock.Unlock();
    changed_.NotifyAll();
    return on_lost_(
        is_final ? reason
                 : Unavailable(reason.message() + "; so did " + std::to_string(kMostFruitless) +
                               " new connections, before anything came over them"),
        life);
  }
  Wake(reason);
}

void Reconnector::Wake(const Status& reason) {
  reason_ = reason;
  broken_ = true;
  if (!thread_.joinable()) {
    thread_ = Thread("byteps-again", [this] { Run(); });
  }
  changed_.NotifyAll();
}

void Reconnector::Revive(const Status& reason) {
  MutexLock lock(mutex_);
  if (stopped_) return;
  lost_ = false;
  fruitless_ = 0;
  ++lives_;
  Wake(reason);
}

void Reconnector::NoteProgress() {
  MutexLock lock(mutex_);
  fruitless_ = 0;
}

void Reconnector::Stop() {
  Thread thread;
  {
    MutexLock lock(mutex_);
    stopped_ = true;
    thread.Swap(thread_);
  }
  changed_.NotifyAll();
  if (thread.joinable()) thread.Join();
}

void Reconnector::Run() {
  MutexLock lock(mutex_);
  while (!stopped_) {
    while ((!broken_ || lost_) && !stopped_) changed_.Wait(mutex_);
    if (stopped_) return;
    broken_ = false;
    const int life = lives_;
    const Status broke = reason_;
    const Status status = ConnectAgain();
    if (status.ok() || over() || life != lives_) continue;
    lost_ = true;
    lock.Unlock();
    on_lost_(Unavailable(broke.message() + "; it could not be connected again in " +
                         std::to_string(static_cast<int>(kReconnectSeconds)) +
                         " s: " + status.message()),
             life);
    lock.Lock();
  }
}

Status Reconnector::ConnectAgain() {
  int64_t deadline_ns = MonotonicNanos() + SecondsToNanos(kReconnectSeconds);
  const int life = lives_;
  Backoff backoff(kFirstPauseNanos, kMostPauseNanos);
  while (true) {
    mutex_.Unlock();
    const double left = std::max(kLeastAttemptNanos, deadline_ns - MonotonicNanos()) * 1e-9;
    const Status status = Guarded([&] { return attempt_(std::min(kAttemptSeconds, left)); });
    const bool may_come =
        status.code() == StatusCode::kUnavailable || status.code() == StatusCode::kDeadlineExceeded;
    // Not one for which there is no time: this one's error says more.
    bool is_last = MonotonicNanos() + kLeastAttemptNanos >= deadline_ns;
    if (is_last && may_come && may_go_on_ != nullptr && may_go_on_()) {
      is_last = false;
      deadline_ns = MonotonicNanos() + SecondsToNanos(kAttemptSeconds);
    }
    mutex_.Lock();
    if (status.ok() || over() || life != lives_ || !may_come || is_last) return status;
    const int64_t next_ns = MonotonicNanos() + backoff.NextNanos();
    while (!over() && MonotonicNanos() < next_ns)
      changed_.WaitFor(mutex_, next_ns - MonotonicNanos());
  }
}

}  // namespace byteps

// Deadlines: calls that are due at a time. One thread makes them, and is started by the first.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>

#include "cc/base/clock.h"
#include "cc/base/guarded.h"
#include "cc/base/logging.h"
#include "cc/base/mutex.h"
#include "cc/base/thread.h"

namespace byteps {

// Thread-safe. The destructor waits for a call that is being made; calls that are not due yet are
// never made.
class Deadlines {
 public:
  Deadlines() = default;
  ~Deadlines() {
    {
      MutexLock lock(mutex_);
      stops_ = true;
    }
    changed_.NotifyAll();
    if (thread_.joinable()) thread_.Join();
  }
  Deadlines(const Deadlines&) = delete;
  Deadlines& operator=(const Deadlines&) = delete;

  // `call` may block, and add others. `at_ns`: as MonotonicNanos().
  void Add(int64_t at_ns, std::function<void()> call) {
    MutexLock lock(mutex_);
    due_.emplace(at_ns, std::move(call));
    if (!thread_.joinable()) {
      Thread thread("byteps-deadlines", [this] { Run(); });
      thread_.Swap(thread);
    }
    changed_.NotifyAll();
  }

 private:
  void Run() {
    MutexLock lock(mutex_);
    while (!stops_) {
      const int64_t now_ns = MonotonicNanos();
      if (due_.empty()) {
        changed_.Wait(mutex_);
      } else if (due_.begin()->first > now_ns) {
        changed_.WaitFor(mutex_, due_.begin()->first - now_ns);
      } else {
        const std::function<void()> call = std::move(due_.begin()->second);
        due_.erase(due_.begin());
        lock.Unlock();
        const Status status = Guarded([&] {
          call();
          return OkStatus();
        });
        if (!status.ok()) LogError("a call that was due: " + status.ToString());
        lock.Lock();
      }
    }
  }

  Mutex mutex_;
  CondVar changed_;
  bool stops_ BYTEPS_GUARDED_BY(mutex_) = false;
  std::multimap<int64_t, std::function<void()>> due_ BYTEPS_GUARDED_BY(mutex_);
  Thread thread_;  // started with the mutex locked
};

}  // namespace byteps

// PeriodicThread: calls a function again and again until stopped; for heartbeats and deadlines.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "cc/base/clock.h"
#include "cc/base/guarded.h"
#include "cc/base/logging.h"
#include "cc/base/mutex.h"
#include "cc/base/thread.h"

namespace byteps {

class PeriodicThread {
 public:
  PeriodicThread() = default;
  ~PeriodicThread() { Stop(); }

  // Calls `task` every `seconds` on a thread of its own; once per object. `late_ns`: how much later
  // than `seconds` after the call before. If that is long, this process was stopped meanwhile.
  void Start(const std::string& name, double seconds, std::function<void(int64_t late_ns)> task) {
    thread_ = Thread(name, [this, name, seconds, task = std::move(task)] {
      MutexLock lock(mutex_);
      int64_t called_ns = MonotonicNanos();
      while (!stopping_) {
        const int64_t due_ns = MonotonicNanos() + SecondsToNanos(seconds);
        while (!stopping_ && MonotonicNanos() < due_ns)
          wake_.WaitFor(mutex_, due_ns - MonotonicNanos());
        if (stopping_) return;
        lock.Unlock();
        const int64_t before_ns = std::exchange(called_ns, MonotonicNanos());
        const int64_t late_ns = called_ns - before_ns - SecondsToNanos(seconds);
        const Status status = Guarded([&] {
          task(late_ns);
          return OkStatus();
        });
        if (!status.ok()) LogError(name + ": " + status.ToString());
        lock.Lock();
      }
    });
  }

  // Waits for a running call. Idempotent; not from inside the task.
  void Stop() {
    {
      MutexLock lock(mutex_);
      stopping_ = true;
    }
    wake_.NotifyAll();
    if (thread_.joinable()) thread_.Join();
  }

 private:
  Thread thread_;
  Mutex mutex_;
  CondVar wake_;
  bool stopping_ BYTEPS_GUARDED_BY(mutex_) = false;
};

}  // namespace byteps

// PeriodicThread: calls a function again and again until stopped; for heartbeats and deadlines.
#ifndef TF_BYTEPS_CC_BASE_PERIODIC_THREAD_H_
#define TF_BYTEPS_CC_BASE_PERIODIC_THREAD_H_

#include <cstdint>
#include <functional>
#include <string>

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

  // Calls `task` every `seconds` on a thread of its own; once per object.
  void Start(const std::string& name, double seconds, std::function<void()> task) {
    thread_ = Thread(name, [this, name, seconds, task = std::move(task)] {
      MutexLock lock(mutex_);
      while (!stopping_) {
        const int64_t due_ns = MonotonicNanos() + SecondsToNanos(seconds);
        while (!stopping_ && MonotonicNanos() < due_ns)
          wake_.WaitFor(mutex_, due_ns - MonotonicNanos());
        if (stopping_) return;
        lock.Unlock();
        const Status status = Guarded([&] {
          task();
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

#endif  // TF_BYTEPS_CC_BASE_PERIODIC_THREAD_H_

// PeriodicThread: calls a function again and again until stopped; for heartbeats and deadlines.
#ifndef TF_BYTEPS_CC_BASE_PERIODIC_THREAD_H_
#define TF_BYTEPS_CC_BASE_PERIODIC_THREAD_H_

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "cc/base/clock.h"
#include "cc/base/guarded.h"
#include "cc/base/logging.h"

namespace byteps {

class PeriodicThread {
 public:
  PeriodicThread() = default;
  ~PeriodicThread() { Stop(); }

  // Calls `task` every `seconds` on a thread of its own; once per object.
  void Start(const std::string& name, double seconds, std::function<void()> task) {
    thread_ = std::thread([this, name, seconds, task = std::move(task)] {
      SetThreadName(name);
      std::unique_lock<std::mutex> lock(mutex_);
      while (!stopping_) {
        wake_.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return stopping_; });
        if (stopping_) return;
        lock.unlock();
        const Status status = Guarded([&] {
          task();
          return OkStatus();
        });
        if (!status.ok()) LogError(name + ": " + status.ToString());
        lock.lock();
      }
    });
  }

  // Waits for a running call. Idempotent; not from inside the task.
  void Stop() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_BASE_PERIODIC_THREAD_H_

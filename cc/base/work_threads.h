// WorkThreads: threads that run what they are given, for those who must not do it themselves.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/thread.h"

namespace byteps {

// Thread-safe.
class WorkThreads {
 public:
  WorkThreads(const std::string& name, int count);
  ~WorkThreads() { Stop(); }

  // Returns at once. The work is begun in the order of the calls: with one thread, one piece ends
  // before the next begins. After Stop, the calling thread does it.
  void Add(std::function<void()> work);

  // Waits until all work is done, what it adds itself, too, and ends the threads. Not from inside
  // of work. Idempotent.
  void Stop();

 private:
  void Run();

  Mutex mutex_;
  CondVar changed_;
  std::deque<std::function<void()>> waiting_ BYTEPS_GUARDED_BY(mutex_);
  bool stopping_ BYTEPS_GUARDED_BY(mutex_) = false;
  std::vector<Thread> threads_;
};

}  // namespace byteps

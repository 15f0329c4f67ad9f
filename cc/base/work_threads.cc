#include "cc/base/work_threads.h"

#include <utility>

namespace byteps {

WorkThreads::WorkThreads(const std::string& name, int count) {
  for (int i = 0; i < count; ++i) {
    threads_.emplace_back(name, [this] { Run(); });
  }
}

void WorkThreads::Add(std::function<void()> work) {
  {
    MutexLock lock(mutex_);
    if (!stopping_) {
      waiting_.push_back(std::move(work));
      work = nullptr;
    }
  }
  if (work != nullptr) return work();
  changed_.NotifyOne();
}

void WorkThreads::Stop() {
  {
    MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.NotifyAll();
  for (Thread& thread : threads_) {
    if (thread.joinable()) thread.Join();
  }
}

void WorkThreads::Run() {
  MutexLock lock(mutex_);
  while (true) {
    while (!stopping_ && waiting_.empty()) changed_.Wait(mutex_);
    if (waiting_.empty()) return;
    std::function<void()> next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.Unlock();
    next();
    next = nullptr;  // what it owns goes before the next wait
    lock.Lock();
  }
}

}  // namespace byteps

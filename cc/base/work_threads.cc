#include "cc/base/work_threads.h"

#include <utility>

#include "cc/base/clock.h"

namespace byteps {

WorkThreads::WorkThreads(const std::string& name, int count) {
  for (int i = 0; i < count; ++i) {
    threads_.emplace_back([this, name] {
      SetThreadName(name);
      Run();
    });
  }
}

void WorkThreads::Add(std::function<void()> work) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!stopping_) {
      waiting_.push_back(std::move(work));
      work = nullptr;
    }
  }
  if (work != nullptr) return work();
  changed_.notify_one();
}

void WorkThreads::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

void WorkThreads::Run() {
  std::unique_lock<std::mutex> lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    std::function<void()> next = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    next();
    next = nullptr;  // what it owns goes before the next wait
    lock.lock();
  }
}

}  // namespace byteps

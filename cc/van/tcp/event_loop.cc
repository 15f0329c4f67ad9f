#include "cc/van/tcp/event_loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "cc/base/clock.h"
#include "cc/base/fork.h"
#include "cc/base/guarded.h"
#include "cc/base/logging.h"

namespace byteps {
namespace {

constexpr int kTickMilliseconds = 1000;
constexpr int kMaxEvents = 64;

// For what has nobody else who could say that it failed: connections end with the error themselves.
template <typename Body>
void RunGuarded(Body body) {
  const Status status = Guarded([&] {
    body();
    return OkStatus();
  });
  if (!status.ok()) LogError("an I/O thread has given something up: " + status.ToString());
}

}  // namespace

EventLoop::~EventLoop() {
  Stop();
  for (const int descriptor : {epoll_, wake_}) {
    if (descriptor < 0) continue;
    ForgetDescriptor(descriptor);
    close(descriptor);
  }
}

Status EventLoop::Start(const std::string& thread_name) {
  epoll_ = epoll_create1(EPOLL_CLOEXEC);
  if (epoll_ < 0) return ResourceExhausted(ErrnoMessage("epoll_create1"));
  CloseInForkedChild(epoll_);
  wake_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) return ResourceExhausted(ErrnoMessage("eventfd"));
  CloseInForkedChild(wake_);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wake_;
  if (epoll_ctl(epoll_, EPOLL_CTL_ADD, wake_, &event) != 0)
    return Internal(ErrnoMessage("epoll_ctl"));
  thread_ = std::thread([this, thread_name] {
    SetThreadName(thread_name);
    Run();
  });
  return OkStatus();
}

void EventLoop::Stop() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopping_ = true;
  }
  if (!thread_.joinable()) return;
  Wake();
  thread_.join();
}

void EventLoop::Add(int descriptor, uint32_t events, std::shared_ptr<Watcher> watcher) {
  std::unique_lock<std::mutex> lock(mutex_);
  if (stopping_) {
    lock.unlock();
    watcher->OnStop();
    return;
  }
  watchers_[descriptor] = std::move(watcher);
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  epoll_ctl(epoll_, EPOLL_CTL_ADD, descriptor, &event);
}

void EventLoop::Modify(int descriptor, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = descriptor;
  epoll_ctl(epoll_, EPOLL_CTL_MOD, descriptor, &event);
}

void EventLoop::Remove(int descriptor) {
  epoll_ctl(epoll_, EPOLL_CTL_DEL, descriptor, nullptr);
  std::shared_ptr<Watcher> watcher;  // outlives the lock: its destructor may do anything
  std::lock_guard<std::mutex> lock(mutex_);
  const auto it = watchers_.find(descriptor);
  if (it == watchers_.end()) return;
  watcher = std::move(it->second);
  watchers_.erase(it);
}

void EventLoop::Post(std::function<void()> task) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopping_) return;
    tasks_.push_back(std::move(task));
  }
  Wake();
}

void EventLoop::Wake() {
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the loop is awake already.
  if (write(wake_, &one, sizeof(one)) < 0) return;
}

std::vector<std::shared_ptr<Watcher>> EventLoop::Watchers() {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<std::shared_ptr<Watcher>> watchers;
  watchers.reserve(watchers_.size());
  for (const auto& [descriptor, watcher] : watchers_) watchers.push_back(watcher);
  return watchers;
}

void EventLoop::RunTasks() {
  std::vector<std::function<void()>> tasks;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) RunGuarded(task);
}

void EventLoop::Run() {
  epoll_event events[kMaxEvents];
  int64_t next_tick = MonotonicNanos() + kTickMilliseconds * 1000000LL;
  while (true) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (stopping_) break;
    }
    const int count = epoll_wait(epoll_, events, kMaxEvents, kTickMilliseconds);
    for (int i = 0; i < count; ++i) {
      if (events[i].data.fd == wake_) {
        uint64_t value;
        if (read(wake_, &value, sizeof(value)) < 0 && errno != EAGAIN) continue;
        continue;
      }
      std::shared_ptr<Watcher> watcher;
      {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto it = watchers_.find(events[i].data.fd);
        if (it != watchers_.end()) watcher = it->second;
      }
      if (watcher) RunGuarded([&] { watcher->OnEvents(events[i].events); });
    }
    RunTasks();
    const int64_t now = MonotonicNanos();
    if (now >= next_tick) {
      next_tick = now + kTickMilliseconds * 1000000LL;
      FlushLog();
      for (const auto& watcher : Watchers()) RunGuarded([&] { watcher->OnTick(now); });
    }
  }
  for (const auto& watcher : Watchers()) watcher->OnStop();
  std::lock_guard<std::mutex> lock(mutex_);
  watchers_.clear();
  tasks_.clear();
}

Status StartEventLoops(int count, const std::string& thread_name,
                       std::vector<std::unique_ptr<EventLoop>>* loops) {
  std::vector<std::unique_ptr<EventLoop>> started;
  for (int i = 0; i < std::max(1, count); ++i) {
    started.push_back(std::make_unique<EventLoop>());
    BYTEPS_RETURN_IF_ERROR(started.back()->Start(thread_name + std::to_string(i)));
  }
  *loops = std::move(started);
  return OkStatus();
}

}  // namespace byteps

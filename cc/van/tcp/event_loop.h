// EventLoop: one thread that waits with epoll and calls whoever its descriptor concerns. It sleeps
// when nothing happens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "cc/base/status.h"

namespace byteps {

// Owns a descriptor that the loop watches. All calls come from the loop's thread.
class Watcher {
 public:
  virtual ~Watcher() = default;
  virtual void OnEvents(uint32_t events) = 0;
  // About once a second, for deadlines.
  virtual void OnTick(int64_t now_ns) { (void)now_ns; }
  // The loop ends; the watcher closes its descriptor. The last call.
  virtual void OnStop() = 0;
};

class EventLoop {
 public:
  EventLoop() = default;
  ~EventLoop();

  Status Start(const std::string& thread_name);

  // Calls OnStop of every watcher and joins the thread. Idempotent; not from the loop's own thread.
  void Stop();

  // Any thread. The loop shares ownership of the watcher until Remove. After Stop the watcher is
  // refused: OnStop is called at once, in the caller's thread.
  void Add(int descriptor, uint32_t events, std::shared_ptr<Watcher> watcher);

  // Any thread.
  void Modify(int descriptor, uint32_t events);

  // Loop thread only. No call to the watcher follows.
  void Remove(int descriptor);

  // Runs `task` on the loop's thread, soon. Dropped after Stop.
  void Post(std::function<void()> task);

 private:
  void Run();
  void RunTasks();
  void Wake();
  std::vector<std::shared_ptr<Watcher>> Watchers();

  int epoll_ = -1;
  int wake_ = -1;
  std::thread thread_;
  std::mutex mutex_;  // guards all below
  std::unordered_map<int, std::shared_ptr<Watcher>> watchers_;
  std::vector<std::function<void()>> tasks_;
  bool stopping_ = false;
};

// Starts so many loops, at least one, whose threads are called `thread_name` and a number. After an
// error there are none.
Status StartEventLoops(int count, const std::string& thread_name,
                       std::vector<std::unique_ptr<EventLoop>>* loops);

}  // namespace byteps

// Thread: a std::thread that a simulation can run, too (schedule.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <utility>

#include "cc/base/clock.h"
#include "cc/base/schedule.h"

namespace byteps {

// Must have been joined or detached when it ends.
class Thread {
 public:
  Thread() = default;
  // `name` as for SetThreadName.
  Thread(const std::string& name, std::function<void()> body) {
    if (Schedule* const schedule = CurrentSchedule()) {
      number_ = schedule->StartThread(std::move(body));
      return;
    }
    thread_ = std::thread([name, body = std::move(body)] {
      SetThreadName(name);
      body();
    });
  }

  bool joinable() const { return number_ != 0 || thread_.joinable(); }
  void Join() {
    const uint64_t number = std::exchange(number_, 0);
    if (number == 0) return thread_.join();
    CurrentSchedule()->JoinThread(number);
  }
  // It ends by itself, whenever that is.
  void Detach() {
    if (std::exchange(number_, 0) == 0) thread_.detach();
  }
  void Swap(Thread& other) {
    thread_.swap(other.thread_);
    std::swap(number_, other.number_);
  }

 private:
  std::thread thread_;
  uint64_t number_ = 0;  // of a simulated one; else 0
};

}  // namespace byteps

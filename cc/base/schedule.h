// Schedule: what time it is, and which thread goes on. The system decides that, unless a simulation
// has put a schedule of its own in place (cc/simulation): then one seed decides all of it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

namespace byteps {

// Calls come from one thread at a time.
class Schedule {
 public:
  virtual ~Schedule() = default;

  virtual int64_t NowNanos() = 0;
  // In place of std::random_device.
  virtual uint32_t Random() = 0;

  // Runs `body` as a thread: from now on, and as far as its next Wait at a time. Returns its
  // number.
  virtual uint64_t StartThread(std::function<void()> body) = 0;
  // Returns once that thread has ended.
  virtual void JoinThread(uint64_t thread) = 0;
  // Returns after Notify(condition), at the deadline, or before. The caller holds no lock.
  virtual void Wait(const void* condition, int64_t deadline_ns) = 0;
  virtual void Notify(const void* condition) = 0;
  // A mutex is to be locked that is locked already; does not return. No thread waits while it has
  // one, so that this thread would wait for itself.
  [[noreturn]] virtual void OnLockedTwice() = 0;
};

namespace internal {
inline std::atomic<Schedule*> current_schedule{nullptr};
}  // namespace internal

// Null: the system's.
inline Schedule* CurrentSchedule() {
  return internal::current_schedule.load(std::memory_order_relaxed);
}

// Before the first thread that is to follow it, and null again after the last one's end.
inline void SetSchedule(Schedule* schedule) { internal::current_schedule = schedule; }

}  // namespace byteps

// EventSchedule: a Schedule (base/schedule.h) for simulations. Its threads are fibers of the one
// thread that calls Run; time passes only between events; one seed decides what comes first.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/schedule.h"

namespace byteps {

// The sanitizers take a change of stacks for a mistake.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kCanSimulate = false;
#else
inline constexpr bool kCanSimulate = true;
#endif

// Not thread-safe. What it runs may call it from inside.
class EventSchedule final : public Schedule {
 public:
  explicit EventSchedule(uint64_t seed, bool keeps_log = false)
      : random_(seed), keeps_log_(keeps_log) {
    SetSchedule(this);
  }
  ~EventSchedule() override { SetSchedule(nullptr); }

  // Runs `body` and what it starts, as long as something happens, or until Fail. Once. After a
  // failure what was at work stays as it is: nothing of it may be touched, nor end.
  void Run(std::function<void()> body) {
    StartThread(std::move(body));
    while (failure_.empty() && !events_.empty()) {
      const auto first = events_.begin();
      now_ns_ = first->first.first;
      Event event = std::move(first->second);
      events_.erase(first);
      ++events_done_;
      const auto fiber = fibers_.find(event.fiber);
      if (event.is_for_fiber && (fiber == fibers_.end() || fiber->second->wait != event.wait))
        continue;
      const size_t process = event.is_for_fiber ? fiber->second->process : event.process;
      if (IsStopped(process)) {
        events_.emplace(std::make_pair(stopped_until_ns_[process], ++sequence_), std::move(event));
        continue;
      }
      if (event.is_for_fiber) {
        Resume(fiber->second.get());
      } else {
        const uint64_t number = StartFiber(event.work);
        fibers_[number]->process = process;
        Resume(fibers_[number].get());
      }
      if (failure_.empty() && after_event_) after_event_();
    }
    if (failure_.empty() && !fibers_.empty()) failure_ = "somebody waits for what cannot happen";
  }

  // Called after each event.
  void AfterEvent(std::function<void()> look) { after_event_ = std::move(look); }

  // Ends Run: does not return.
  [[noreturn]] void Fail(const std::string& what) {
    Note("FAILED: " + what);
    if (failure_.empty()) failure_ = what;
    if (current_ == nullptr) std::abort();
    swapcontext(&current_->context, &outside_);
    std::abort();
  }
  const std::string& failure() const { return failure_; }

  // A process that can be stopped; others than these are one, with the number 0.
  size_t NumberOf(const std::string& process) {
    const size_t number = processes_.emplace(process, processes_.size() + 1).first->second;
    stopped_until_ns_.resize(std::max(stopped_until_ns_.size(), number + 1), 0);
    return number;
  }
  // The thread that calls this, and those that it starts, are its threads.
  void BelongTo(const std::string& process) { current_->process = NumberOf(process); }
  // For so long none of its threads does anything, as with SIGSTOP.
  void Stop(const std::string& process, int64_t nanos) {
    Note("stop " + process + " for " + std::to_string(nanos / 1000000) + " ms");
    int64_t& until_ns = stopped_until_ns_[NumberOf(process)];
    until_ns = std::max(until_ns, now_ns_ + nanos);
  }

  bool IsStopped(size_t process) const { return stopped_until_ns_[process] > now_ns_; }

  // An event of its own, after so long. It may Wait.
  void After(int64_t nanos, std::function<void()> work) {
    After(nanos, current_ == nullptr ? 0 : current_->process, std::move(work));
  }
  // In another process than that which calls this.
  void After(int64_t nanos, size_t process, std::function<void()> work) {
    Event event;
    event.work = std::move(work);
    event.process = process;
    events_.emplace(std::make_pair(now_ns_ + nanos, ++sequence_), std::move(event));
  }
  void Sleep(int64_t nanos) {
    const int64_t until = now_ns_ + nanos;
    while (now_ns_ < until) Wait(nullptr, until);
  }

  // 0 to `most`.
  uint64_t Draw(uint64_t most) { return most == 0 ? 0 : random_() % (most + 1); }
  bool Chance(double probability) {
    return static_cast<double>(random_() >> 11) * 0x1p-53 < probability;
  }

  // Of the log: what happened when. `Hash` is of all of it, also where none is kept.
  void Note(const std::string& what) {
    for (const char c : what) hash_ = (hash_ ^ static_cast<uint8_t>(c)) * 0x100000001b3;
    hash_ = (hash_ ^ static_cast<uint64_t>(now_ns_)) * 0x100000001b3;
    if (!keeps_log_) return;
    char time[32];
    std::snprintf(time, sizeof(time), "%14.6f ms  ", static_cast<double>(now_ns_ - kBegin) * 1e-6);
    log_.push_back(time + what);
  }
  bool keeps_log() const { return keeps_log_; }
  const std::vector<std::string>& log() const { return log_; }
  uint64_t hash() const { return hash_; }
  uint64_t events_done() const { return events_done_; }
  int64_t SinceBegin() const { return now_ns_ - kBegin; }

  // ---- Schedule

  int64_t NowNanos() override { return now_ns_; }
  uint32_t Random() override { return static_cast<uint32_t>(random_()); }
  uint64_t StartThread(std::function<void()> body) override {
    const uint64_t number = StartFiber(std::move(body));
    ResumeAt(now_ns_ + Slice(), number);
    return number;
  }
  void JoinThread(uint64_t thread) override {
    while (fibers_.count(thread) > 0)
      Wait(fibers_[thread].get(), std::numeric_limits<int64_t>::max());
  }
  void Wait(const void* condition, int64_t deadline_ns) override {
    Fiber* const self = current_;
    if (self == nullptr) std::abort();  // outside Run
    ++self->wait;
    self->condition = condition;
    if (deadline_ns < std::numeric_limits<int64_t>::max())
      ResumeAt(std::max(deadline_ns, now_ns_) + Slice(), self->number);
    swapcontext(&self->context, &outside_);
  }
  void Notify(const void* condition) override {
    for (const auto& [number, fiber] : fibers_) {
      if (fiber->condition != condition) continue;
      fiber->condition = nullptr;  // another condition may get this address before it goes on
      ResumeAt(now_ns_ + Slice(), number);
    }
  }
  [[noreturn]] void OnLockedTwice() override {
    Fail("a mutex is locked twice by one thread: something is called with it that may not be");
  }

 private:
  struct Fiber {
    uint64_t number = 0;
    std::function<void()> body;
    std::unique_ptr<char[]> stack;
    ucontext_t context;
    uint64_t wait = 0;  // how often it has waited: an earlier wait's end is nobody's
    const void* condition = nullptr;
    bool has_ended = false;
    size_t process = 0;
  };
  struct Event {
    std::function<void()> work;
    bool is_for_fiber = false;
    uint64_t fiber = 0;
    uint64_t wait = 0;
    size_t process = 0;  // of what is not for a fiber
  };
  static constexpr size_t kStackBytes = 256 * 1024;
  static constexpr int64_t kBegin = 1000 * int64_t{1000000000};

  // How long until a thread that may go on does, as a busy host has it.
  int64_t Slice() { return static_cast<int64_t>(Draw(20000)); }

  void ResumeAt(int64_t time_ns, uint64_t number) {
    Event event;
    event.is_for_fiber = true;
    event.fiber = number;
    event.wait = fibers_[number]->wait;
    events_.emplace(std::make_pair(time_ns, ++sequence_), std::move(event));
  }

  uint64_t StartFiber(std::function<void()> body) {
    const uint64_t number = ++last_fiber_;
    auto fiber = std::make_unique<Fiber>();
    fiber->number = number;
    fiber->body = std::move(body);
    if (current_ != nullptr) fiber->process = current_->process;
    if (free_stacks_.empty()) {
      fiber->stack.reset(new char[kStackBytes]);
    } else {
      fiber->stack = std::move(free_stacks_.back());
      free_stacks_.pop_back();
    }
    getcontext(&fiber->context);
    fiber->context.uc_stack.ss_sp = fiber->stack.get();
    fiber->context.uc_stack.ss_size = kStackBytes;
    fiber->context.uc_link = &outside_;
    const auto address = reinterpret_cast<uintptr_t>(fiber.get());
    makecontext(&fiber->context, reinterpret_cast<void (*)()>(&Enter), 2,
                static_cast<unsigned>(address), static_cast<unsigned>(address >> 32));
    fibers_.emplace(number, std::move(fiber));
    return number;
  }

  static void Enter(unsigned low, unsigned high) {
    auto* const fiber =
        reinterpret_cast<Fiber*>(static_cast<uintptr_t>(low) | static_cast<uintptr_t>(high) << 32);
    fiber->body();
    fiber->body = nullptr;
    fiber->has_ended = true;
  }

  void Resume(Fiber* fiber) {
    ++fiber->wait;
    fiber->condition = nullptr;
    current_ = fiber;
    swapcontext(&outside_, &fiber->context);
    current_ = nullptr;
    if (!fiber->has_ended || !failure_.empty()) return;
    Notify(fiber);
    free_stacks_.push_back(std::move(fiber->stack));
    fibers_.erase(fiber->number);
  }

  std::mt19937_64 random_;
  const bool keeps_log_;
  std::vector<std::string> log_;
  uint64_t hash_ = 0xcbf29ce484222325;
  int64_t now_ns_ = kBegin;
  uint64_t sequence_ = 0;
  uint64_t events_done_ = 0;
  std::map<std::string, size_t> processes_;               // their numbers
  std::vector<int64_t> stopped_until_ns_ = {0};           // by number
  std::map<std::pair<int64_t, uint64_t>, Event> events_;  // by time, then in order
  std::map<uint64_t, std::unique_ptr<Fiber>> fibers_;
  std::vector<std::unique_ptr<char[]>> free_stacks_;
  uint64_t last_fiber_ = 0;
  Fiber* current_ = nullptr;
  ucontext_t outside_;
  std::function<void()> after_event_;
  std::string failure_;
};

}  // namespace byteps

// Mutex, MutexLock, CondVar: those of the standard library, with attributes from which clang finds
// out whether what a mutex guards is ever touched without it (tools/tidy.sh). In a simulation
// (schedule.h) no thread ever waits for a mutex.
//
//   Mutex mutex_;
//   int count_ BYTEPS_GUARDED_BY(mutex_) = 0;
//   void Add() BYTEPS_REQUIRES(mutex_);  // the caller has locked it
//
// A lambda begins without any lock, as far as clang knows: one that touches what is guarded needs
// BYTEPS_REQUIRES after its parameters. So conditions are waited for in loops, not with predicates.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <shared_mutex>

#include "cc/base/schedule.h"

#if defined(__clang__)
#define BYTEPS_THREAD_ATTRIBUTE(attribute) __attribute__((attribute))
#else
#define BYTEPS_THREAD_ATTRIBUTE(attribute)
#endif

#define BYTEPS_CAPABILITY(name) BYTEPS_THREAD_ATTRIBUTE(capability(name))
#define BYTEPS_SCOPED_CAPABILITY BYTEPS_THREAD_ATTRIBUTE(scoped_lockable)
// Of a field.
#define BYTEPS_GUARDED_BY(mutex) BYTEPS_THREAD_ATTRIBUTE(guarded_by(mutex))
// Of a function, which is called with the mutex locked, or without.
#define BYTEPS_REQUIRES(...) BYTEPS_THREAD_ATTRIBUTE(requires_capability(__VA_ARGS__))
#define BYTEPS_EXCLUDES(...) BYTEPS_THREAD_ATTRIBUTE(locks_excluded(__VA_ARGS__))
// Of a function, which locks it or unlocks it.
#define BYTEPS_ACQUIRE(...) BYTEPS_THREAD_ATTRIBUTE(acquire_capability(__VA_ARGS__))
#define BYTEPS_ACQUIRE_SHARED(...) BYTEPS_THREAD_ATTRIBUTE(acquire_shared_capability(__VA_ARGS__))
#define BYTEPS_RELEASE(...) BYTEPS_THREAD_ATTRIBUTE(release_capability(__VA_ARGS__))
#define BYTEPS_RELEASE_SHARED(...) BYTEPS_THREAD_ATTRIBUTE(release_shared_capability(__VA_ARGS__))
#define BYTEPS_RELEASE_GENERIC(...) BYTEPS_THREAD_ATTRIBUTE(release_generic_capability(__VA_ARGS__))
// Of a function whose locking clang cannot follow; a comment says why.
#define BYTEPS_NO_THREAD_SAFETY_ANALYSIS BYTEPS_THREAD_ATTRIBUTE(no_thread_safety_analysis)

namespace byteps {

class BYTEPS_CAPABILITY("mutex") Mutex {
 public:
  void Lock() BYTEPS_ACQUIRE() {
    Schedule* const schedule = CurrentSchedule();
    if (schedule == nullptr) return mutex_.lock();
    if (!mutex_.try_lock()) schedule->OnLockedTwice();
  }
  void Unlock() BYTEPS_RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Locks for as long as it lives, but for what is between its own Unlock and Lock.
class BYTEPS_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) BYTEPS_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~MutexLock() BYTEPS_RELEASE() {
    if (is_locked_) mutex_.Unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void Unlock() BYTEPS_RELEASE() {
    is_locked_ = false;
    mutex_.Unlock();
  }
  void Lock() BYTEPS_ACQUIRE() {
    mutex_.Lock();
    is_locked_ = true;
  }

 private:
  Mutex& mutex_;
  bool is_locked_ = true;
};

class BYTEPS_CAPABILITY("mutex") SharedMutex {
 public:
  void Lock() BYTEPS_ACQUIRE() { mutex_.lock(); }
  void Unlock() BYTEPS_RELEASE() { mutex_.unlock(); }
  void LockShared() BYTEPS_ACQUIRE_SHARED() { mutex_.lock_shared(); }
  void UnlockShared() BYTEPS_RELEASE_SHARED() { mutex_.unlock_shared(); }

 private:
  std::shared_mutex mutex_;
};

class BYTEPS_SCOPED_CAPABILITY WriterLock {
 public:
  explicit WriterLock(SharedMutex& mutex) BYTEPS_ACQUIRE(mutex) : mutex_(mutex) { mutex_.Lock(); }
  ~WriterLock() BYTEPS_RELEASE() { mutex_.Unlock(); }
  WriterLock(const WriterLock&) = delete;
  WriterLock& operator=(const WriterLock&) = delete;

 private:
  SharedMutex& mutex_;
};

class BYTEPS_SCOPED_CAPABILITY ReaderLock {
 public:
  explicit ReaderLock(SharedMutex& mutex) BYTEPS_ACQUIRE_SHARED(mutex) : mutex_(mutex) {
    mutex_.LockShared();
  }
  ~ReaderLock() BYTEPS_RELEASE_GENERIC() { mutex_.UnlockShared(); }
  ReaderLock(const ReaderLock&) = delete;
  ReaderLock& operator=(const ReaderLock&) = delete;

 private:
  SharedMutex& mutex_;
};

class CondVar {
 public:
  // These two unlock the mutex while they wait. They return after a notification, and without one
  // at times: what is waited for is looked at in a loop.
  void Wait(Mutex& mutex) BYTEPS_REQUIRES(mutex) {
    if (CurrentSchedule() != nullptr)
      return WaitAsScheduled(mutex, std::numeric_limits<int64_t>::max());
    Adopted lock(mutex.mutex_);
    changed_.wait(lock.lock);
  }
  // At most so long.
  void WaitFor(Mutex& mutex, int64_t nanos) BYTEPS_REQUIRES(mutex) {
    if (Schedule* const schedule = CurrentSchedule())
      return WaitAsScheduled(mutex, schedule->NowNanos() + nanos);
    Adopted lock(mutex.mutex_);
    changed_.wait_for(lock.lock, std::chrono::nanoseconds(nanos));
  }

  void NotifyOne() {
    if (CurrentSchedule() != nullptr) return NotifyAll();
    changed_.notify_one();
  }
  void NotifyAll() {
    if (Schedule* const schedule = CurrentSchedule()) return schedule->Notify(this);
    changed_.notify_all();
  }

 private:
  void WaitAsScheduled(Mutex& mutex, int64_t deadline_ns) BYTEPS_REQUIRES(mutex) {
    mutex.Unlock();
    CurrentSchedule()->Wait(this, deadline_ns);
    mutex.Lock();
  }

  // A lock of the standard library, on a mutex that stays locked.
  struct Adopted {
    explicit Adopted(std::mutex& mutex) : lock(mutex, std::adopt_lock) {}
    ~Adopted() { lock.release(); }
    std::unique_lock<std::mutex> lock;
  };
  std::condition_variable changed_;
};

}  // namespace byteps

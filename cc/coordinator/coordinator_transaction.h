// What happens at the coordinator, one event at a time. For the files that implement Coordinator.
#pragma once

#include "cc/base/clock.h"
#include "cc/coordinator/coordinator.h"

namespace byteps {

// Locks the coordinator's mutex for as long as it lives, and performs what was decided meanwhile
// before it is free again: what several threads have to say reaches all in one order, and nobody
// hears that a job has ended before he hears why. To send may be to write to a socket, but never to
// wait for it.
class BYTEPS_SCOPED_CAPABILITY Coordinator::Transaction {
 public:
  explicit Transaction(Coordinator* coordinator) BYTEPS_ACQUIRE(coordinator->mutex_)
      : coordinator_(coordinator), mutex_(coordinator->mutex_) {
    mutex_.Lock();
    effects_.now_ns = MonotonicNanos();
  }
  // clang does not know that this mutex is the coordinator's.
  ~Transaction() BYTEPS_RELEASE() BYTEPS_NO_THREAD_SAFETY_ANALYSIS {
    coordinator_->Perform(&effects_);
    mutex_.Unlock();
  }
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  CoordinatorEffects* effects() { return &effects_; }
  int64_t now_ns() const { return effects_.now_ns; }

 private:
  Coordinator* const coordinator_;
  Mutex& mutex_;
  CoordinatorEffects effects_;
};

}  // namespace byteps

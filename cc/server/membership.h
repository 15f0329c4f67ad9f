// Who of the workers is still there. Thread-safe.
#ifndef TF_BYTEPS_CC_SERVER_MEMBERSHIP_H_
#define TF_BYTEPS_CC_SERVER_MEMBERSHIP_H_

#include <atomic>
#include <cstdint>
#include <map>

#include "cc/base/mutex.h"
#include "cc/base/status.h"

namespace byteps {

class Membership {
 public:
  // `rank` said goodbye. Also after Disconnect: the end of a connection may overtake the goodbye,
  // which comes by way of the coordinator.
  void Leave(int32_t rank) {
    MutexLock lock(mutex_);
    gone_[rank] = OkStatus();
    any_departed_ = true;
  }

  // The connection of `rank` has ended, and nobody knows yet whether that is a death. Nothing after
  // Leave.
  void Disconnect(int32_t rank, const Status& reason) {
    MutexLock lock(mutex_);
    gone_.emplace(rank, reason);
    any_departed_ = true;
  }

  // Whether one of the above has happened to `rank`, or to anybody.
  bool HasDeparted(int32_t rank) const {
    MutexLock lock(mutex_);
    return gone_.count(rank) > 0;
  }
  bool AnyDeparted() const { return any_departed_; }

  // One that has departed and for which `matches`; -1: there is none.
  template <typename Predicate>
  int32_t FindDeparted(Predicate matches) const {
    MutexLock lock(mutex_);
    for (const auto& [rank, reason] : gone_) {
      if (matches(rank)) return rank;
    }
    return -1;
  }

  // Why `rank` departed; OK if it said goodbye.
  Status ReasonOf(int32_t rank) const {
    MutexLock lock(mutex_);
    const auto it = gone_.find(rank);
    return it == gone_.end() ? OkStatus() : it->second;
  }

  // The coordinator says that a worker is dead: nothing goes on. The first reason is the one to
  // tell.
  void Lose(const Status& reason) {
    MutexLock lock(mutex_);
    if (lost_.ok()) lost_ = reason;
    any_departed_ = true;
  }
  // OK while nobody is lost.
  Status lost() const {
    MutexLock lock(mutex_);
    return lost_;
  }

 private:
  std::atomic<bool> any_departed_{false};  // spares the mutex as long as all is well
  mutable Mutex mutex_;
  std::map<int32_t, Status> gone_ BYTEPS_GUARDED_BY(mutex_);
  Status lost_ BYTEPS_GUARDED_BY(mutex_);
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_SERVER_MEMBERSHIP_H_

// Who of the workers is still there. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/server/state/served_push.h"
#include "cc/wire/control.h"

namespace byteps {

class Membership {
 public:
  // `rank` said goodbye. Also after Disconnect: the end of a connection may overtake the goodbye,
  // which comes by way of the coordinator.
  void Leave(int32_t rank) {
    WriterLock lock(mutex_);
    departed_.workers[rank] = OkStatus();
    any_departed_ = true;
  }

  // The connection of `rank` has ended, and nobody knows yet whether that is a death. Nothing after
  // Leave.
  void Disconnect(int32_t rank, const Status& reason) {
    WriterLock lock(mutex_);
    departed_.workers.emplace(rank, reason);
    any_departed_ = true;
  }

  // These have no more data; nobody: all have again.
  void SetJoined(const Joined& joined) {
    WriterLock lock(mutex_);
    departed_.joined = {joined.ranks.begin(), joined.ranks.end()};
    departed_.failed.clear();
    for (const Joined::Failed& each : joined.failed)
      departed_.failed[{each.key, each.worker}] = each.next_round;
    departed_.clocks.clear();
    for (const Joined::Clock& each : joined.clocks)
      departed_.clocks[{each.key, each.worker}] = each;
    any_departed_ = true;
  }

  // The coordinator says that a worker is dead: nothing goes on. The first reason is the one to
  // tell.
  void Lose(const Status& reason) {
    WriterLock lock(mutex_);
    if (departed_.lost.ok()) departed_.lost = reason;
    any_departed_ = true;
  }

  // Calls `function` with who has departed, which changes only afterwards; null: nobody.
  template <typename Function>
  auto Look(const Function& function) const {
    const Departed* const nobody = nullptr;
    if (!any_departed_) return function(nobody);
    ReaderLock lock(mutex_);
    const Departed* const departed = &departed_;
    return function(departed);
  }

  // Whether Leave or Disconnect has happened to `rank`.
  bool HasDeparted(int32_t rank) const {
    return Look([rank](const Departed* departed) {
      return departed != nullptr && departed->workers.count(rank) > 0;
    });
  }
  // OK while nobody is lost.
  Status lost() const {
    return Look(
        [](const Departed* departed) { return departed != nullptr ? departed->lost : OkStatus(); });
  }

 private:
  std::atomic<bool> any_departed_{false};  // spares the mutex as long as all is well
  mutable SharedMutex mutex_;
  Departed departed_ BYTEPS_GUARDED_BY(mutex_);
};

}  // namespace byteps

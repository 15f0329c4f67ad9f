// What happens to a LocalGroup's state, one event at a time. For the files that implement
// LocalGroup.
#pragma once

#include "cc/staging/local_group.h"

namespace byteps {

// Locks a group's mutex for as long as it lives. What lets streams go on is done before the mutex
// is free, as a result may come at the same time. All else is so without it: the device may wait,
// and callbacks are the caller's code.
class BYTEPS_SCOPED_CAPABILITY LocalGroup::Transaction {
 public:
  explicit Transaction(LocalGroup* group) BYTEPS_ACQUIRE(group->mutex_)
      : group_(group), mutex_(group->mutex_) {
    mutex_.Lock();
  }
  // clang does not know that this mutex is the group's.
  ~Transaction() BYTEPS_RELEASE() BYTEPS_NO_THREAD_SAFETY_ANALYSIS {
    group_->PerformFirst(effects_);
    mutex_.Unlock();
    group_->Perform(&effects_);
  }
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  GroupEffects* effects() { return &effects_; }

 private:
  LocalGroup* const group_;
  Mutex& mutex_;
  GroupEffects effects_;
};

}  // namespace byteps

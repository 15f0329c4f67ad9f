// What happens to a Worker's state, one event at a time. For the files that implement Worker.
#pragma once

#include "cc/base/clock.h"
#include "cc/worker/worker.h"

namespace byteps {

inline Moment Now() { return {MonotonicNanos(), WallNanos()}; }

inline Source SourceOf(const Connection& connection) {
  return {connection.peer().rank, connection.peer().path, &connection, connection.peer_name()};
}

// Locks a worker's mutex for as long as it lives, then performs what was decided meanwhile: never
// before the mutex is free, as Send may write to a socket and callbacks are the caller's code.
class BYTEPS_SCOPED_CAPABILITY Worker::Transaction {
 public:
  explicit Transaction(Worker* worker) BYTEPS_ACQUIRE(worker->mutex_)
      : worker_(worker), mutex_(worker->mutex_) {
    mutex_.Lock();
    effects_.now = Now();
  }
  ~Transaction() BYTEPS_RELEASE() {
    mutex_.Unlock();
    worker_->Perform(&effects_);
  }
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  Effects* effects() { return &effects_; }

 private:
  Worker* const worker_;
  Mutex& mutex_;
  Effects effects_;
};

}  // namespace byteps

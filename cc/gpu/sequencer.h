// Sequencer and LogFollower: the two ends of a host's launch log (launch_log.h).
//
// The sequencer lives in local rank 0; every local rank, that one too, has a follower. How reports
// and slices get from one process to the other is the business of their owner.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/base/thread.h"
#include "cc/gpu/launch_log.h"

namespace byteps {

// Thread-safe.
class Sequencer {
 public:
  // `publish` gets all of the log, slice by slice, for delivery to every local rank, on the
  // sequencer's thread. `fail` is called at most once, instead of any further slice.
  Sequencer(int32_t local_size, ResultsFrom results_from,
            std::function<void(const LogSlice&)> publish, std::function<void(const Status&)> fail);
  // No call comes after it.
  ~Sequencer();

  // Returns at once. What arrives while a slice is published is in the next one.
  void Add(std::vector<LaunchReport> reports);

 private:
  void Run();

  const std::function<void(const LogSlice&)> publish_;
  const std::function<void(const Status&)> fail_;
  LaunchLog log_;  // of the thread

  Mutex mutex_;
  CondVar changed_;
  std::vector<LaunchReport> reports_ BYTEPS_GUARDED_BY(mutex_);
  bool stopping_ BYTEPS_GUARDED_BY(mutex_) = false;
  Thread thread_;
};

// One thread at a time.
class LogFollower {
 public:
  // `launch` puts an entry's collective on this rank's stream. It sees the whole log in order.
  explicit LogFollower(std::function<Status(const LaunchEntry&)> launch)
      : launch_(std::move(launch)) {}

  // Launches the slice's entries. INTERNAL if entries before it are missing: then this rank's
  // collectives would not be those of the others.
  Status Receive(const LogSlice& slice);

 private:
  const std::function<Status(const LaunchEntry&)> launch_;
  uint64_t next_ = 0;
};

}  // namespace byteps

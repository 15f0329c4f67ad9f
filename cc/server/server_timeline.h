// ServerTimeline: when each worker's push of a part arrived, when the sum was there, and when the
// reply left, recorded while somebody wants to know.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/server/state/served_push.h"

namespace byteps {

// One push and its reply. Times are this server's wall clock.
struct ServedPush {
  const std::string* tensor = nullptr;  // lives as long as the service
  uint64_t round = 0;
  uint32_t part = 0;
  int32_t worker = -1;
  StatusCode status = StatusCode::kOk;
  int64_t arrival_begin_ns = 0;  // the push's header
  int64_t arrival_end_ns = 0;    // its last byte
  int64_t sum_ns = 0;            // the sum was complete; 0: it failed, or is an older round's
  int64_t answer_ns = 0;         // the reply was queued
};

// Thread-safe.
class ServerTimeline {
 public:
  // Forgets what it has. Of more than `max_replies` until Stop, further ones are only counted.
  void Start(uint64_t max_replies) {
    MutexLock lock(mutex_);
    recorded_ = Recording();
    replies_left_ = max_replies;
    recording_ = true;
  }
  void Stop() { recording_ = false; }

  // A look at a flag is all that it costs while nobody wants to know. `reply` is about to leave.
  void Add(const std::string& tensor, const Reply& reply) {
    if (!recording_.load(std::memory_order_relaxed)) return;
    const FrameHeader& header = reply.frame.header;
    MutexLock lock(mutex_);
    if (replies_left_ == 0) {
      ++recorded_.dropped;
      return;
    }
    --replies_left_;
    recorded_.pushes.push_back({&tensor, header.round, header.part, header.worker, header.status,
                                header.begin_time_ns, header.receive_time_ns, reply.sum_ns,
                                header.send_time_ns});
  }

  // What has been recorded since Start or the last Take.
  struct Recording {
    std::vector<ServedPush> pushes;
    uint64_t dropped = 0;  // replies beyond the limit
  };
  Recording Take() {
    MutexLock lock(mutex_);
    return std::exchange(recorded_, Recording());
  }

  // What a server's file has of pushes while it grows: events of a Chrome trace, "," in front of
  // each; the last line has no end. `args` has the fields of tf_byteps.timeline's Served.
  static std::string Lines(const Recording& recording, int32_t server, int64_t process,
                           int64_t epoch);

 private:
  std::atomic<bool> recording_{false};
  Mutex mutex_;
  uint64_t replies_left_ BYTEPS_GUARDED_BY(mutex_) = 0;
  Recording recorded_ BYTEPS_GUARDED_BY(mutex_);
};

}  // namespace byteps

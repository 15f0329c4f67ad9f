// EventRecord: what the log's events tell of, kept while somebody records them, whatever the log's
// level is. The timeline of the scheduler is made of these.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/logging.h"
#include "cc/base/mutex.h"

namespace byteps {

struct RecordedEvent {
  int64_t time_ns = 0;  // WallNanos
  std::string message;
  std::string name;
  LogFields fields;
};

// Thread-safe. Calls do not wait: Log calls Add with locks held.
class EventRecord {
 public:
  // Forgets what it has. Of more than `max_events` that nobody takes, further ones are only
  // counted.
  void Start(uint64_t max_events);
  void Stop();

  // Messages without an event's name are left out, and all while nobody records.
  void Add(const std::string& message, const LogEvent& event);

  // What has been recorded since Start or the last Take, in the order of time.
  struct Recording {
    std::vector<RecordedEvent> events;
    uint64_t dropped = 0;  // beyond the limit
  };
  Recording Take();

 private:
  std::atomic<bool> recording_{false};
  Mutex mutex_;
  uint64_t max_events_ BYTEPS_GUARDED_BY(mutex_) = 0;
  Recording recorded_ BYTEPS_GUARDED_BY(mutex_);
};

// That of this process. It outlives every thread.
EventRecord& ProcessEvents();

}  // namespace byteps

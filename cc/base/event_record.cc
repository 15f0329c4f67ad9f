#include "cc/base/event_record.h"

#include <utility>

#include "cc/base/clock.h"
#include "cc/base/fork.h"

namespace byteps {

void EventRecord::Start(uint64_t max_events) {
  MutexLock lock(mutex_);
  recorded_ = Recording();
  max_events_ = max_events;
  recording_ = true;
}

void EventRecord::Stop() { recording_ = false; }

void EventRecord::Add(const std::string& message, const LogEvent& event) {
  if (!recording_.load(std::memory_order_relaxed) || event.name[0] == '\0') return;
  // The lock may have been held by a thread that a forked child does not have.
  if (!CheckNotForked().ok()) return;
  MutexLock lock(mutex_);
  if (!recording_) return;
  if (recorded_.events.size() == max_events_) {
    ++recorded_.dropped;
    return;
  }
  recorded_.events.push_back({WallNanos(), message, event.name, event.fields});
}

EventRecord::Recording EventRecord::Take() {
  MutexLock lock(mutex_);
  return std::exchange(recorded_, Recording());
}

EventRecord& ProcessEvents() {
  static EventRecord* const record = new EventRecord;
  return *record;
}

}  // namespace byteps

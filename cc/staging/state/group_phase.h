// GroupPhase: how far a group of GPUs is: its connections, its launch log, and this worker's way
// out.
#pragma once

#include <cstdint>

#include "cc/base/status.h"
#include "cc/base/transition.h"

namespace byteps {

// Not thread-safe.
class GroupPhase {
 public:
  enum class State {
    kConnecting,
    kConnected,
    kFailed,  // of a rank, a device or the job: nothing is exchanged any more
  };
  enum class LogState {
    kOpen,
    kPublished,  // local rank 0 has published the last entry
    kEnded,      // this rank has followed it to its end
  };
  enum class PresenceState {
    kHere,
    kLeaving,
    kGone,  // the threads end
  };

  // docs/states.md draws these.
  static constexpr Transition<State> kTransitions[] = {
      {State::kConnecting, "connected", State::kConnected},
      {State::kConnecting, "Fail", State::kFailed},
      {State::kConnected, "Fail", State::kFailed},
  };
  static constexpr Transition<LogState> kLogTransitions[] = {
      {LogState::kOpen, "end published", LogState::kPublished},
      {LogState::kOpen, "end followed", LogState::kEnded},
      {LogState::kPublished, "end followed", LogState::kEnded},
  };
  static constexpr Transition<PresenceState> kPresenceTransitions[] = {
      {PresenceState::kHere, "OnStop", PresenceState::kLeaving},
      {PresenceState::kHere, "destroyed", PresenceState::kGone},
      {PresenceState::kLeaving, "destroyed", PresenceState::kGone},
  };

  State state() const { return state_; }
  LogState log() const { return log_; }
  PresenceState presence() const { return presence_; }
  bool is_connected() const { return state_ == State::kConnected; }
  bool has_log_ended() const { return log_ == LogState::kEnded; }
  bool is_gone() const { return presence_ == PresenceState::kGone; }
  // OK if there was none.
  const Status& failure() const { return failure_; }
  // Of results for all ranks of the host; false until they are connected.
  bool shares_results() const { return shares_results_; }

  void Connect(bool shares_results);
  // Whether that is news: the first failure counts.
  bool Fail(const Status& reason);

  void PublishEnd();
  void EndLog() { log_ = LogState::kEnded; }

  // A connection to another rank has ended. Whether that is in order: another rank may read the
  // log's end, and hang up, before this one does.
  bool OnLost();
  int32_t lost_count() const { return lost_count_; }

  // Whether that is news.
  bool Leave();
  void Go() { presence_ = PresenceState::kGone; }

 private:
  State state_ = State::kConnecting;
  LogState log_ = LogState::kOpen;
  PresenceState presence_ = PresenceState::kHere;
  bool shares_results_ = false;
  Status failure_;
  int32_t lost_count_ = 0;  // connections that have ended
};

}  // namespace byteps

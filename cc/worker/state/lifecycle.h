// Lifecycle: whether a worker still exchanges anything, and why not.
#pragma once

#include <cstdint>
#include <optional>

#include "cc/base/status.h"
#include "cc/base/transition.h"
#include "cc/wire/handshake.h"

namespace byteps {

// Who ended the job by being lost.
struct LostPeer {
  Role role = Role::kWorker;
  int32_t rank = 0;  // the coordinator has none
};

// Not thread-safe.
class Lifecycle {
 public:
  enum class State {
    kRunning,
    kFailed,   // of another process, or of this one
    kStopped,  // this worker leaves the job
  };

  // docs/states.md draws this.
  static constexpr Transition<State> kTransitions[] = {
      {State::kRunning, "Fail", State::kFailed},
      {State::kRunning, "Stop", State::kStopped},
      {State::kFailed, "Stop", State::kStopped},
  };

  State state() const { return state_; }
  bool is_running() const { return state_ == State::kRunning; }
  bool is_stopped() const { return state_ == State::kStopped; }

  // Whether that is news: the first failure counts, and none after Stop.
  bool Fail(const Status& reason, const std::optional<LostPeer>& lost);
  // Whether that is news.
  bool Stop();

  // What those get who want to exchange something; OK while it runs.
  Status Refusal() const;
  // OK if there was none.
  const Status& failure() const { return failure_; }
  // Whose loss it was, if it was a loss.
  const std::optional<LostPeer>& lost_peer() const { return lost_peer_; }

 private:
  State state_ = State::kRunning;
  Status failure_;
  std::optional<LostPeer> lost_peer_;
};

}  // namespace byteps

// JobPhase: how far a job is, as the coordinator sees it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "cc/base/transition.h"
#include "cc/wire/control.h"

namespace byteps {

// Not thread-safe.
class JobPhase {
 public:
  enum class State {
    kRunning,
    kFailed,   // somebody was lost without whom it cannot go on: the others leave
    kOver,     // no worker is here, or will come
    kStopped,  // this process ends
  };

  // "Loss": of somebody without whom the job cannot go on. docs/states.md draws this.
  static constexpr Transition<State> kTransitions[] = {
      {State::kRunning, "Loss", State::kFailed},
      {State::kRunning, "last worker has left", State::kOver},
      {State::kFailed, "last worker has left", State::kOver},
      {State::kRunning, "Stop", State::kStopped},
      {State::kFailed, "Stop", State::kStopped},
      {State::kOver, "Stop", State::kStopped},
  };

  State state() const { return state_; }
  bool is_running() const { return state_ == State::kRunning; }
  bool is_stopped() const { return state_ == State::kStopped; }

  // Whether it is the first loss. One after the end is also remembered, for who waits.
  bool Fail(const PeerLost& lost, int64_t now_ns);
  void End(int64_t now_ns);
  void Stop() { state_ = State::kStopped; }

  // Who was lost first.
  const std::optional<PeerLost>& first_lost() const { return first_lost_; }
  // Why it failed, or "".
  std::string failure() const { return first_lost_.has_value() ? first_lost_->description : ""; }
  // Once, after a failure.
  bool TakeUnreportedFailure() { return std::exchange(is_unreported_, false); }

  // Whether nobody is to be waited for any more. `connected`: how many connections there still are,
  // but for those of lost processes.
  bool IsFinished(int32_t connected, int64_t shutdown_timeout_ns, int64_t now_ns) const;

 private:
  State state_ = State::kRunning;
  std::optional<PeerLost> first_lost_;
  int64_t failed_at_ns_ = 0;
  int64_t over_at_ns_ = 0;
  bool is_unreported_ = false;
};

}  // namespace byteps

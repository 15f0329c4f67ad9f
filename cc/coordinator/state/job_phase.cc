#include "cc/coordinator/state/job_phase.h"

namespace byteps {
namespace {

// How long the others have to read the last messages before their connections are closed.
constexpr int64_t kLastMessagesNanos = 5 * int64_t{1000000000};

}  // namespace

bool JobPhase::Fail(const PeerLost& lost, int64_t now_ns) {
  if (first_lost_.has_value()) return false;
  if (state_ == State::kRunning) state_ = State::kFailed;
  first_lost_ = lost;
  failed_at_ns_ = now_ns;
  is_unreported_ = true;
  return true;
}

void JobPhase::End(int64_t now_ns) {
  if (state_ != State::kRunning && state_ != State::kFailed) return;
  state_ = State::kOver;
  over_at_ns_ = now_ns;
}

bool JobPhase::IsFinished(int32_t connected, int64_t shutdown_timeout_ns, int64_t now_ns) const {
  if (state_ == State::kStopped) return true;
  // The others close their connections once they have read that the job has ended.
  if (state_ == State::kOver && (connected == 0 || now_ns > over_at_ns_ + kLastMessagesNanos))
    return true;
  // After a loss the others are told and leave by themselves; those that do not are not waited for
  // for ever.
  return first_lost_.has_value() && now_ns > failed_at_ns_ + shutdown_timeout_ns;
}

}  // namespace byteps

#include "cc/worker/state/lifecycle.h"

namespace byteps {

bool Lifecycle::Fail(const Status& reason, const std::optional<LostPeer>& lost) {
  if (state_ != State::kRunning) return false;
  state_ = State::kFailed;
  failure_ = reason;
  lost_peer_ = lost;
  return true;
}

bool Lifecycle::Stop() {
  if (state_ == State::kStopped) return false;
  state_ = State::kStopped;
  return true;
}

Status Lifecycle::Refusal() const {
  if (state_ == State::kStopped)
    return Cancelled("tf_byteps has been shut down; call tf_byteps.init() first");
  return failure_;
}

}  // namespace byteps

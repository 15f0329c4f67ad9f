#include "cc/staging/state/group_phase.h"

namespace byteps {

void GroupPhase::Connect(bool shares_results) {
  if (state_ != State::kConnecting) return;
  state_ = State::kConnected;
  shares_results_ = shares_results;
}

bool GroupPhase::Fail(const Status& reason) {
  if (state_ == State::kFailed) return false;
  state_ = State::kFailed;
  failure_ = reason;
  return true;
}

void GroupPhase::PublishEnd() {
  if (log_ == LogState::kOpen) log_ = LogState::kPublished;
}

bool GroupPhase::OnLost() {
  ++lost_count_;
  return log_ != LogState::kOpen;
}

bool GroupPhase::Leave() {
  if (presence_ != PresenceState::kHere) return false;
  presence_ = PresenceState::kLeaving;
  return true;
}

}  // namespace byteps

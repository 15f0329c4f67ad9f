#include "cc/staging/state/staged_tensor.h"

namespace byteps {

bool StagedTensor::NoteComputed() {
  if (state_ == State::kEnqueued) state_ = State::kComputed;
  if (state_ != State::kPlaced) return false;
  state_ = State::kStarted;
  return true;
}

bool StagedTensor::NotePlaced(const std::shared_ptr<Exchange>& placed) {
  if (state_ != State::kEnqueued && state_ != State::kComputed) return false;
  exchange = placed;
  parts_left_ = part_count();
  const bool begins = state_ == State::kComputed;
  state_ = begins ? State::kStarted : State::kPlaced;
  return begins;
}

bool StagedTensor::BeginStep() {
  if (state_ == State::kFailing || state_ == State::kEnded) return false;
  ++at_work_;
  return true;
}

bool StagedTensor::Fail(const Status& reason) {
  if (state_ == State::kFailing || state_ == State::kEnded) return false;
  failure_ = reason;
  if (is_at_work()) state_ = State::kFailing;
  return true;
}

bool StagedTensor::End() {
  if (state_ == State::kEnded) return false;
  state_ = State::kEnded;
  return true;
}

}  // namespace byteps

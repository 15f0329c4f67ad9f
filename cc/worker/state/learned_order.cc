#include "cc/worker/state/learned_order.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace byteps {
namespace {

// Who uses kBackwardOrder waits for results in this step: they go before all in forward order.
constexpr int32_t kFirstInBackwardOrder = 1 << 30;
// After all in forward order that is not held back.
constexpr int32_t kHeldBack = -(1 << 30);
// Its multiples are spread evenly between whole numbers.
constexpr double kPartStep = 0.6180339887;
// Keys are spread evenly themselves.
constexpr uint64_t kKeySteps = 1024;
// See CreditOfOverlap.
constexpr uint64_t kLeastCreditsOfStep = 8;
constexpr uint64_t kMostOfCredit = 4;

}  // namespace

int32_t LearnedOrder::PriorityOf(int32_t number, int32_t given) {
  if (given == kBackwardOrder) return kFirstInBackwardOrder - number;
  if (!IsForwardOrder(given)) return given;
  positions_[number - 1] = given == kForwardOrder ? kUnknown : given - ForwardOrderAt(0);
  return -number;
}

int32_t LearnedOrder::PriorityInForwardOrder(int32_t priority) const {
  const int32_t number = -priority;
  const int32_t position = positions_[number - 1];
  return positions_hold_ && position != kUnknown ? 2 * kMostForwardPositions - position : number;
}

int32_t LearnedOrder::PriorityOfPart(int32_t priority, uint64_t key, uint32_t part) const {
  const double place = static_cast<double>(key % kKeySteps) / kKeySteps + part * kPartStep;
  return place - std::floor(place) < early_share_ ? priority : kHeldBack - priority;
}

void LearnedOrder::NoteStep(uint64_t late_bytes) {
  const uint64_t bytes = early_bytes_ + late_bytes;
  if (steps_ == 0) positions_hold_ = PositionsHold();
  // In the first step all waits for its placement.
  if (steps_++ > 0 && bytes > 0) early_share_ = static_cast<double>(early_bytes_) / bytes;
  early_bytes_ = 0;
  step_bytes_ = bytes;
}

uint64_t LearnedOrder::CreditOfOverlap(uint64_t credit) const {
  if (step_bytes_ == 0) return credit;
  return std::clamp(step_bytes_ / kLeastCreditsOfStep, credit / kMostOfCredit, credit);
}

bool LearnedOrder::CompletesStep(int32_t number) {
  const bool is_last = number == last_in_forward_order_;
  last_in_forward_order_ = std::max(last_in_forward_order_, number);
  return is_last;
}

bool LearnedOrder::PositionsHold() const {
  std::vector<std::pair<int32_t, int32_t>> known;
  for (size_t i = 0; i < positions_.size(); ++i)
    if (positions_[i] != kUnknown) known.emplace_back(positions_[i], static_cast<int32_t>(i));
  std::sort(known.begin(), known.end());
  // Those that are half of all apart cannot have changed places by chance.
  const size_t half = known.size() / 2;
  size_t wrong = 0;
  for (size_t i = 0; i < half; ++i) wrong += known[i].second < known[i + half].second ? 1 : 0;
  return half > 0 && 10 * wrong <= half;
}

}  // namespace byteps

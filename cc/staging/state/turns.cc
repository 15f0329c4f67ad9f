#include "cc/staging/state/turns.h"

#include <algorithm>
#include <utility>

namespace byteps {

void Turns::Add(const TensorPointer& tensor) {
  tensor->has_turn = true;
  waiting_.push_back({tensor, tensor->gpu.tensor.name, ""});
}

bool Turns::AddGivenUp(const std::string& name, const std::string& reason) {
  const bool waits = (placing_ && placed_as_ == name) ||
                     std::any_of(waiting_.begin(), waiting_.end(),
                                 [&](const Turn& turn) { return turn.name == name; });
  if (waits) waiting_.push_back({nullptr, name, reason});
  return waits;
}

void Turns::End(const StagedTensor& tensor) { in_flight_.erase(tensor.gpu.tensor.name); }

bool Turns::Begin() { return !std::exchange(placing_, true); }

std::optional<Turn> Turns::Next() {
  const bool may_begin = !waiting_.empty() && (waiting_.front().tensor == nullptr ||
                                               in_flight_.insert(waiting_.front().name).second);
  if (!may_begin) {
    placing_ = false;
    return std::nullopt;
  }
  Turn next = std::move(waiting_.front());
  waiting_.pop_front();
  placed_as_ = next.name;
  return next;
}

}  // namespace byteps

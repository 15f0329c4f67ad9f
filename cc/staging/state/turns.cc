#include "cc/staging/state/turns.h"

#include <utility>

namespace byteps {

void Turns::Add(const TensorPointer& tensor) {
  tensor->has_turn = true;
  waiting_.push_back(tensor);
}

void Turns::End(const StagedTensor& tensor) { in_flight_.erase(tensor.gpu.tensor.name); }

bool Turns::Begin() { return !std::exchange(placing_, true); }

TensorPointer Turns::Next() {
  const bool may_begin =
      !waiting_.empty() && in_flight_.insert(waiting_.front()->gpu.tensor.name).second;
  if (!may_begin) {
    placing_ = false;
    return nullptr;
  }
  TensorPointer next = std::move(waiting_.front());
  waiting_.pop_front();
  return next;
}

}  // namespace byteps

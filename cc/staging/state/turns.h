// Turns: in which order the worker places exchanges for which their callers' streams wait.
//
// A program may be started before the GPU has done with the exchanges of the one before. What it
// has started first is placed first: copies and collectives wait for their inputs in this order.
#ifndef TF_BYTEPS_CC_STAGING_STATE_TURNS_H_
#define TF_BYTEPS_CC_STAGING_STATE_TURNS_H_

#include <deque>
#include <string>
#include <unordered_set>

#include "cc/staging/state/staged_tensor.h"

namespace byteps {

// Not thread-safe.
class Turns {
 public:
  // The tensor waits until an earlier one of its name, or one that waits before it, has ended.
  void Add(const TensorPointer& tensor);
  // The next exchange of this one's name can be placed.
  void End(const StagedTensor& tensor);
  bool has_waiting() const { return !waiting_.empty(); }

  // Whether the caller is to place what Next returns; no if a thread does so already, which also
  // sees what has changed now.
  bool Begin();
  // Null: there is nothing more to place.
  TensorPointer Next();

 private:
  std::unordered_set<std::string> in_flight_;  // names
  std::deque<TensorPointer> waiting_;
  bool placing_ = false;  // a thread goes through waiting_
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_STAGING_STATE_TURNS_H_

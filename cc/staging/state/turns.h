// Turns: in which order the worker places exchanges for which their callers' streams wait.
//
// A program may be started before the GPU has done with the exchanges of the one before. What it
// has started first is placed first: copies and collectives wait for their inputs in this order.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <unordered_set>

#include "cc/staging/state/staged_tensor.h"

namespace byteps {

// What is next.
struct Turn {
  TensorPointer tensor;  // to be placed; null: a round is given up
  std::string name;      // of the tensor
  std::string reason;    // why it is given up
};

// Not thread-safe.
class Turns {
 public:
  // The tensor waits until an earlier one of its name, or one that waits before it, has ended.
  void Add(const TensorPointer& tensor);
  // The worker gives up the next round of a tensor after the exchanges of it that wait. False:
  // there is none, and so it may do that at once.
  bool AddGivenUp(const std::string& name, const std::string& reason);
  // The next exchange of this one's name can be placed.
  void End(const StagedTensor& tensor);
  bool has_waiting() const { return !waiting_.empty(); }

  // Whether the caller is to place what Next returns; no if a thread does so already, which also
  // sees what has changed now.
  bool Begin();
  // None: there is nothing more to place.
  std::optional<Turn> Next();

 private:
  std::unordered_set<std::string> in_flight_;  // names
  std::deque<Turn> waiting_;
  bool placing_ = false;   // a thread goes through waiting_
  std::string placed_as_;  // the name of what it places now
};

}  // namespace byteps

// GroupEffects: what is to be done because something has happened to a group of GPUs, collected by
// those who decide it.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/staging/state/staged_tensor.h"

namespace byteps {

// Of one event. Who performs them is LocalGroup::Transaction, in the order of the fields. Those
// that every tensor has need no memory of their own; the others are rare.
struct GroupEffects {
  // ---- before the mutex is free

  // A stream that waits for results of this tensor goes on without them.
  TensorPointer released;
  bool wakes_waiters = false;

  // ---- after that

  // The worker and the caller are told, and the name is given to the next one.
  TensorPointer finished;
  Status finished_with;
  // The group has failed: the others learn it before `failed`, and the device after them.
  std::optional<Status> group_failure;
  // Each of these fails, one after the other.
  std::vector<std::pair<TensorPointer, Status>> failed;
  // The exchange has failed on this rank, which all ranks are to learn at one point of the log.
  TensorPointer failed_here;
  Status failed_here_for;
  // Its stages begin.
  TensorPointer started;
};

}  // namespace byteps

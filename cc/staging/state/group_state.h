// GroupState: what a group of GPUs knows and decides (staging/local_group.h). Something happens,
// which is a call of one of its rooms with a GroupEffects, and that has afterwards what is to be
// done. No lock, device, thread, connection, clock or log; docs/states.md has the picture.
//
//   phase    connections, the log's end, the way out
//   turns    which exchange is placed next, of those for which streams wait
//   tensors  tensors, from Enqueue to their ends
//
// Each knows only those above it. ReadyTogether and Launches are beside it: what is sent stays in
// order under a mutex of its own, and one thread follows the log.
#pragma once

#include "cc/staging/state/effects.h"
#include "cc/staging/state/group_phase.h"
#include "cc/staging/state/staged_tensors.h"
#include "cc/staging/state/turns.h"

namespace byteps {

// Not thread-safe.
struct GroupState {
  // `alone`: no other rank is there, which leaves nothing to connect to.
  explicit GroupState(bool alone) : tensors(alone, &phase) {
    if (alone) phase.Connect(/*shares_results=*/false);
  }
  GroupState(const GroupState&) = delete;
  GroupState& operator=(const GroupState&) = delete;

  // This worker leaves: whether it can do so in order, as nothing is in flight.
  bool MayLeaveInOrder() const { return phase.failure().ok() && tensors.empty(); }

  GroupPhase phase;
  Turns turns;
  StagedTensors tensors;
};

}  // namespace byteps

// StagedTensors: what happens to the tensors of a group of GPUs, from Enqueue to their ends.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>

#include "cc/gpu/launch_log.h"
#include "cc/staging/state/effects.h"
#include "cc/staging/state/group_phase.h"
#include "cc/staging/state/staged_tensor.h"

namespace byteps {

// Not thread-safe. `phase` outlives it.
class StagedTensors {
 public:
  // `alone`: no other rank is there.
  StagedTensors(bool alone, GroupPhase* phase) : alone_(alone), phase_(*phase) {}

  // The input is there, or the worker knows parts and owners.
  void OnComputed(const TensorPointer& tensor, GroupEffects* effects);
  void OnPlaced(const TensorPointer& tensor, const std::shared_ptr<Exchange>& exchange,
                GroupEffects* effects);
  // The worker has ended the exchange with an error, or memory for it is missing.
  void OnError(const TensorPointer& tensor, const Status& status, GroupEffects* effects);

  // A step of the device's has ended. Whether what follows it may begin; then FinishIfDone is due.
  bool EndStep(const TensorPointer& tensor, const Status& status, GroupEffects* effects);
  void EndPart(const TensorPointer& tensor, GroupEffects* effects);
  void FinishIfDone(const TensorPointer& tensor, GroupEffects* effects);

  // As soon as nothing is at work with it.
  void Fail(const TensorPointer& tensor, const Status& reason, GroupEffects* effects);
  // At once.
  void Finish(const TensorPointer& tensor, const Status& status, GroupEffects* effects);
  // The group, with all tensors in flight.
  void FailGroup(const Status& reason, GroupEffects* effects);

  // The one that an entry of the log is about; null if it is not in flight, or not ready here.
  TensorPointer Find(const LaunchEntry& entry) const;
  // Whether none is placed and has not ended.
  bool empty() const { return live_.empty(); }

 private:
  // The others of its name, which have failed, but not ended.
  void FailEarlier(const StagedTensor& tensor, GroupEffects* effects);

  const bool alone_;
  GroupPhase& phase_;
  std::map<std::pair<uint64_t, uint64_t>, TensorPointer> live_;  // by key and round, once placed
};

}  // namespace byteps

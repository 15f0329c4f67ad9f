#include "cc/staging/state/staged_tensors.h"

namespace byteps {

void StagedTensors::OnComputed(const TensorPointer& tensor, GroupEffects* effects) {
  if (tensor->NoteComputed()) effects->started = tensor;
}

void StagedTensors::OnPlaced(const TensorPointer& tensor, const std::shared_ptr<Exchange>& exchange,
                             GroupEffects* effects) {
  if (tensor->has_ended()) return;  // and the exchange, too: the worker has failed
  const bool begins = tensor->NotePlaced(exchange);
  live_[{exchange->entry->key, exchange->round}] = tensor;
  FailEarlier(*tensor, effects);
  if (!phase_.failure().ok())
    effects->failed.emplace_back(tensor, phase_.failure());
  else if (begins)
    effects->started = tensor;
}

void StagedTensors::FailEarlier(const StagedTensor& tensor, GroupEffects* effects) {
  const uint64_t key = tensor.exchange->entry->key;
  for (auto it = live_.lower_bound({key, 0}); it != live_.end() && it->first.first == key; ++it) {
    const TensorPointer& earlier = it->second;
    if (earlier.get() == &tensor || !earlier->failure().ok()) continue;
    const Status reason = Cancelled(earlier->Name() + ": its name was used again");
    if (alone_ || !phase_.failure().ok()) {
      effects->failed.emplace_back(earlier, reason);
      continue;
    }
    // Until the log says so: what it has before that, all ranks launch. The log learns it before
    // the later round is ready.
    effects->failed_here = earlier;
    effects->failed_here_for = reason;
  }
}

void StagedTensors::OnError(const TensorPointer& tensor, const Status& status,
                            GroupEffects* effects) {
  if (tensor->has_ended() || !tensor->failure().ok()) return;
  const bool by_itself = alone_ || tensor->exchange == nullptr || !phase_.failure().ok();
  if (by_itself) return Fail(tensor, status, effects);
  // It fails on all ranks, at one point of the log; without connections, nothing can go on.
  if (!phase_.is_connected()) return FailGroup(status, effects);
  effects->failed_here = tensor;
  effects->failed_here_for = status;
}

bool StagedTensors::EndStep(const TensorPointer& tensor, const Status& status,
                            GroupEffects* effects) {
  const bool is_last = tensor->EndStep();
  if (!tensor->failure().ok()) {
    if (is_last) Finish(tensor, tensor->failure(), effects);
    return false;
  }
  // The group's failure is about to end it. An aborted collective ends, too, and a copy of what it
  // has left must not go to servers.
  if (!phase_.failure().ok()) return false;
  if (status.ok()) return true;
  FailGroup(status, effects);
  return false;
}

void StagedTensors::EndPart(const TensorPointer& tensor, GroupEffects* effects) {
  tensor->EndPart();
  FinishIfDone(tensor, effects);
}

void StagedTensors::FinishIfDone(const TensorPointer& tensor, GroupEffects* effects) {
  if (tensor->IsDone()) Finish(tensor, OkStatus(), effects);
}

void StagedTensors::Fail(const TensorPointer& tensor, const Status& reason, GroupEffects* effects) {
  if (!tensor->Fail(reason)) return;
  effects->released = tensor;
  if (!tensor->is_at_work()) Finish(tensor, reason, effects);
}

void StagedTensors::Finish(const TensorPointer& tensor, const Status& status,
                           GroupEffects* effects) {
  if (!tensor->End()) return;
  if (tensor->exchange != nullptr) {
    const auto it = live_.find({tensor->exchange->entry->key, tensor->exchange->round});
    if (it != live_.end() && it->second == tensor) live_.erase(it);
  }
  effects->wakes_waiters = true;
  effects->finished = tensor;
  effects->finished_with = status;
}

void StagedTensors::FailGroup(const Status& reason, GroupEffects* effects) {
  if (!phase_.Fail(reason)) return;
  effects->group_failure = reason;
  effects->wakes_waiters = true;
  for (const auto& [round, tensor] : live_) {
    effects->failed.emplace_back(tensor,
                                 Status(reason.code(), tensor->Name() + ": " + reason.message()));
  }
}

TensorPointer StagedTensors::Find(const LaunchEntry& entry) const {
  const auto it = live_.find({entry.key, entry.round});
  if (it == live_.end()) return nullptr;
  // Only a failure comes to one whose input is not computed.
  const bool is_ready = it->second->state() != StagedTensor::State::kPlaced;
  return is_ready || entry.kind == LaunchEntry::Kind::kFail ? it->second : nullptr;
}

}  // namespace byteps

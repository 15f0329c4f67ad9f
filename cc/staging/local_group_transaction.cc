#include "cc/staging/local_group_transaction.h"

#include <utility>

namespace byteps {

void LocalGroup::PerformFirst(const GroupEffects& effects) {
  if (effects.released != nullptr) ReleaseStream(*effects.released);
  if (effects.finished != nullptr) effects.finished->arrivals.clear();
  if (effects.wakes_waiters) changed_.NotifyAll();
}

void LocalGroup::Perform(GroupEffects* effects) {
  if (effects->finished != nullptr) Finish(effects->finished, effects->finished_with);
  // The others wait for this rank's collectives: they must learn that there will be none.
  if (effects->group_failure.has_value() && channel_ != nullptr)
    channel_->Close(*effects->group_failure);
  for (const auto& [tensor, reason] : effects->failed) FailTensor(tensor, reason);
  // NCCL waits for the GPU, whose streams go on now.
  if (effects->group_failure.has_value()) device_->Abort(*effects->group_failure);
  if (effects->failed_here != nullptr) {
    ReportTensor(LaunchReport::Kind::kFailed, *effects->failed_here, 0, effects->failed_here_for);
  }
  if (effects->started != nullptr) Begin(effects->started);
}

void LocalGroup::FailTensor(const TensorPointer& tensor, const Status& reason) {
  Transaction transaction(this);
  state_.tensors.Fail(tensor, reason, transaction.effects());
}

void LocalGroup::Finish(const TensorPointer& tensor, const Status& status) {
  // The name is free before the caller may use it again.
  if (tensor->exchange != nullptr) worker_->End(tensor->exchange, status);
  // With whatever the caller begins when it is told of this one's end, the next exchange of the
  // name can be placed; those that wait follow.
  if (tensor->has_turn) {
    MutexLock lock(mutex_);
    state_.turns.End(*tensor);
  }
  const auto done = std::move(tensor->gpu.done);
  tensor->gpu.done = nullptr;
  done(status);
  tensor->gpu.drop_input = nullptr;
  tensor->gpu.keep_alive = nullptr;
  if (tensor->has_turn) ContinuePlacing();
}

void LocalGroup::Begin(const TensorPointer& tensor) {
  // Otherwise it is not computed before it is copied out.
  if (tensor->input_ready == nullptr || place_.is_one_host()) {
    worker_->NoteInput(tensor->exchange);
    for (uint32_t part = 0; part < tensor->part_count(); ++part)
      worker_->NoteStage(tensor->exchange, part, &PartTrace::computed_ns);
  }
  if (!place_.alone()) {
    return ReportTensor(LaunchReport::Kind::kReady, *tensor, 0, OkStatus(),
                        results_.TakesShared(*tensor));
  }
  if (tensor->gpu.tensor.kind == ExchangeKind::kGather)
    return one_host_stages_.Gather(tensor, {tensor->gpu.gather_rows});
  if (!place_.is_one_host()) return stages_.StartAlone(tensor);
  std::vector<TensorPointer> together;
  {
    MutexLock lock(ready_mutex_);
    ready_.Add(tensor);
    together = ready_.TakeTensors();
  }
  one_host_stages_.Start(together);
}

}  // namespace byteps

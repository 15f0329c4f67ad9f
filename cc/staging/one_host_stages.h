// OneHostStages: what the device does for a tensor in a job on one host: one collective gives all
// ranks the result.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/gpu/rank_device.h"
#include "cc/staging/device_steps.h"
#include "cc/staging/stage_events.h"
#include "cc/worker/worker.h"

namespace byteps {

// Called in the order of the log. Everything that it gets outlives it.
class OneHostStages {
 public:
  OneHostStages(Worker* worker, RankDevice* device, const HostPlace& place, StageEvents* events,
                DeviceSteps* steps)
      : worker_(worker), device_(device), place_(place), events_(*events), steps_(*steps) {}

  // Reductions, or one broadcast.
  void Start(const std::vector<TensorPointer>& tensors);
  // Each rank broadcasts its rows, so many, to where they belong.
  void Gather(const TensorPointer& tensor, const std::vector<int64_t>& rows);

 private:
  Status StartCollective(const std::vector<TensorPointer>& tensors, const RankDevice::Done& done);
  void OnExchanged(const TensorPointer& tensor);

  Worker* const worker_;
  RankDevice* const device_;
  const HostPlace& place_;
  StageEvents& events_;
  DeviceSteps& steps_;
};

}  // namespace byteps

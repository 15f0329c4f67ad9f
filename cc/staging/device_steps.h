// DeviceSteps: has the device do what uses tensors' memory, and tells their group when it begins
// and ends.
#pragma once

#include <functional>

#include "cc/gpu/rank_device.h"
#include "cc/staging/stage_events.h"

namespace byteps {

// Thread-safe. `events` outlives it.
class DeviceSteps {
 public:
  using Start = std::function<Status(const RankDevice::Done&)>;

  explicit DeviceSteps(StageEvents* events) : events_(*events) {}

  // A step that uses the tensor's memory; `next` is called if all goes well.
  void Step(const TensorPointer& tensor, const Start& start, std::function<void()> next);
  // Calls `ended` in any case, once it has ended.
  void Launch(const Start& start, const RankDevice::Done& ended);

 private:
  StageEvents& events_;
};

}  // namespace byteps

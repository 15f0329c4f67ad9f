#include "cc/staging/device_steps.h"

#include <utility>

namespace byteps {

void DeviceSteps::Step(const TensorPointer& tensor, const Start& start,
                       std::function<void()> next) {
  if (!events_.BeginStep(tensor)) return;
  const auto ended = [&events = events_, tensor, next = std::move(next)](const Status& status) {
    events.EndStep(tensor, status, next);
  };
  Launch(start, ended);
}

void DeviceSteps::Launch(const Start& start, const RankDevice::Done& ended) {
  const Status status = start(ended);
  if (status.ok()) return;
  events_.Fail(status);
  ended(status);
}

}  // namespace byteps

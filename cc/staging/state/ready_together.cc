#include "cc/staging/state/ready_together.h"

namespace byteps {

std::vector<LaunchReport> ReadyTogether::TakeReports() {
  if (is_held()) return {};
  return std::exchange(reports_, {});
}

std::vector<TensorPointer> ReadyTogether::TakeTensors() {
  if (is_held()) return {};
  return std::exchange(tensors_, {});
}

}  // namespace byteps

// ReadyTogether: what has become ready, until it is sent or begun. What becomes ready at one time
// goes together: it costs the host less than one by one.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "cc/gpu/launch_log.h"
#include "cc/staging/state/staged_tensor.h"

namespace byteps {

// Not thread-safe.
class ReadyTogether {
 public:
  // Until Release, what is ready waits for whatever else becomes ready meanwhile.
  void Hold() { ++holding_; }
  void Release() { --holding_; }
  bool is_held() const { return holding_ > 0; }

  void Add(LaunchReport report) { reports_.push_back(std::move(report)); }
  // Of a worker that is alone: there is no log.
  void Add(const TensorPointer& tensor) { tensors_.push_back(tensor); }

  // What is due, in the order in which it was added; nothing while it is held.
  std::vector<LaunchReport> TakeReports();
  std::vector<TensorPointer> TakeTensors();

 private:
  int holding_ = 0;
  std::vector<LaunchReport> reports_;
  std::vector<TensorPointer> tensors_;
};

}  // namespace byteps

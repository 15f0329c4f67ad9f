// StragglerWatch: whether one worker makes the others wait for a considerable part of each step.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "cc/wire/control.h"
#include "cc/worker/state/step_meter.h"

namespace byteps {

struct Straggler {
  int32_t rank = 0;
  int64_t lag_ns = 0;   // how much later than the first of its round a part of it comes
  int64_t step_ns = 0;  // how long a step takes
};

// Not thread-safe.
class StragglerWatch {
 public:
  // Whether enough has happened since the last look.
  bool IsDue(const StepCounters& steps, int64_t now_ns) const;

  // Looks at what has been counted so far. Returns a worker that has been the last one, by a
  // quarter of a step, in three looks in turn; not again until it was not.
  std::optional<Straggler> Look(const std::vector<WorkerLag>& lags, const StepCounters& steps,
                                int64_t now_ns);

 private:
  std::optional<Straggler> Suspect(const std::vector<WorkerLag>& lags,
                                   const StepCounters& steps) const;

  std::vector<WorkerLag> lags_before_;
  StepCounters steps_before_;
  int64_t looked_ns_ = 0;
  int32_t suspect_ = -1;
  int times_ = 0;  // in turn
};

}  // namespace byteps

#include "cc/worker/state/straggler_watch.h"

#include <cstddef>

namespace byteps {
namespace {

constexpr int64_t kLeastNanosBetweenLooks = 2'000'000'000;
constexpr uint64_t kLeastSteps = 10;       // between two looks: fewer say little
constexpr double kLeastShare = 0.25;       // of a step
constexpr int64_t kLeastLagNs = 10000000;  // parts arrive at somewhat different times anyway
constexpr int kTimes = 3;

}  // namespace

bool StragglerWatch::IsDue(const StepCounters& steps, int64_t now_ns) const {
  return now_ns - looked_ns_ >= kLeastNanosBetweenLooks &&
         steps.steps >= steps_before_.steps + kLeastSteps;
}

std::optional<Straggler> StragglerWatch::Look(const std::vector<WorkerLag>& lags,
                                              const StepCounters& steps, int64_t now_ns) {
  const std::optional<Straggler> found = Suspect(lags, steps);
  lags_before_ = lags;
  steps_before_ = steps;
  looked_ns_ = now_ns;
  const int32_t rank = found.has_value() ? found->rank : -1;
  times_ = rank == suspect_ ? times_ + 1 : 1;
  suspect_ = rank;
  return times_ == kTimes ? found : std::nullopt;
}

// The worker whose parts came last since the look before.
std::optional<Straggler> StragglerWatch::Suspect(const std::vector<WorkerLag>& lags,
                                                 const StepCounters& steps) const {
  if (lags_before_.size() != lags.size()) return std::nullopt;
  Straggler last;
  for (size_t rank = 0; rank < lags.size(); ++rank) {
    const uint64_t parts = lags[rank].contributions - lags_before_[rank].contributions;
    if (parts == 0) continue;
    const auto lag_ns =
        static_cast<int64_t>((lags[rank].total_ns - lags_before_[rank].total_ns) / parts);
    if (lag_ns > last.lag_ns) last = {static_cast<int32_t>(rank), lag_ns, 0};
  }
  last.step_ns = (steps.step_ns - steps_before_.step_ns) /
                 static_cast<int64_t>(steps.steps - steps_before_.steps);
  const bool is_one =
      last.lag_ns >= kLeastLagNs &&
      static_cast<double>(last.lag_ns) >= kLeastShare * static_cast<double>(last.step_ns);
  return is_one ? std::optional<Straggler>(last) : std::nullopt;
}

}  // namespace byteps

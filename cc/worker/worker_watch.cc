// The part of Worker that looks at what takes long: deadlines, and tensors that wait for others.
#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cc/base/clock.h"
#include "cc/base/logging.h"
#include "cc/worker/worker.h"
#include "cc/worker/worker_actions.h"

namespace byteps {

void Worker::Watch() {
  Status stalled;
  {
    Transaction transaction(this);
    Actions* const actions = transaction.actions();
    const int64_t now = MonotonicNanos();
    const int64_t oldest_ns = EndOverdue(now, actions);
    ReportResults(now, actions);
    if (std::optional<StallQuery> query = stalls_.NextQuery(now, oldest_ns))
      actions->messages.push_back(*std::move(query));
    stalled = stalls_.CheckPatience(now, oldest_ns);
    NameStraggler(now);
  }
  if (!stalled.ok()) Fail(stalled);
}

// One worker tells of it: all see the same.
void Worker::NameStraggler(int64_t now) {
  const StepCounters& steps = step_meter_.counters();
  if (rank_ != 0 || !straggler_watch_.IsDue(steps, now)) return;
  const std::optional<Straggler> found = straggler_watch_.Look(arrivals_.Lags(), steps, now);
  if (!found.has_value()) return;
  const int64_t lag_ms = found->lag_ns / 1000000, step_ms = found->step_ns / 1000000;
  LogWarning("worker " + std::to_string(found->rank) + " is a straggler: its tensors come " +
                 std::to_string(lag_ms) + " ms after the first ones, and a step takes " +
                 std::to_string(step_ms) +
                 " ms. See its CPUs, its input and its link; bpslaunch --timeline says which",
             {"straggler",
              {{"peer_role", std::string("worker")},
               {"peer_rank", static_cast<int64_t>(found->rank)},
               {"lag_ms", lag_ms},
               {"step_ms", step_ms}}});
}

// Returns when the one that waits longest was enqueued; `now` if none waits.
int64_t Worker::EndOverdue(int64_t now, Actions* actions) {
  const double limit = job_.options.timeouts.operation_timeout;
  int64_t oldest_ns = now;
  for (const auto& [name, key] : keys_.by_name()) {
    const std::shared_ptr<Exchange> live = key->live;
    if (live == nullptr) continue;
    oldest_ns = std::min(oldest_ns, live->enqueued_ns);
    if (limit <= 0 || now - live->enqueued_ns < SecondsToNanos(limit)) continue;
    const std::string what = live->entry == nullptr ? "the scheduler has not placed it"
                                                    : std::to_string(live->parts_left) + " of " +
                                                          std::to_string(live->part_done.size()) +
                                                          " parts have no result";
    Finish(
        live,
        DeadlineExceeded(
            live->Name() + ": not done after " + std::to_string(static_cast<int64_t>(limit)) +
            " s (" + what +
            "); another worker has probably not sent it. BYTEPS_OPERATION_TIMEOUT sets the limit"),
        actions);
  }
  return oldest_ns;
}

}  // namespace byteps

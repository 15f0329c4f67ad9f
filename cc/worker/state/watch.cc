#include "cc/worker/state/watch.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

namespace byteps {

Status Watch::OnTick(bool is_asked_for, Effects* effects) {
  const int64_t now_ns = effects->now.ns;
  const int64_t oldest_ns = EndOverdue(effects);
  if (std::optional<StallQuery> query = stalls_.NextQuery(now_ns, oldest_ns, is_asked_for))
    effects->messages.push_back(*std::move(query));
  NameStraggler(effects);
  return stalls_.CheckPatience(now_ns, oldest_ns);
}

// One worker tells of it: all see the same.
void Watch::NameStraggler(Effects* effects) {
  const StepCounters& steps = exchanges_->steps();
  const int64_t now_ns = effects->now.ns;
  if (rank_ != 0 || !straggler_watch_.IsDue(steps, now_ns)) return;
  const std::optional<Straggler> found = straggler_watch_.Look(arrivals_.Lags(), steps, now_ns);
  if (!found.has_value()) return;
  const int64_t lag_ms = found->lag_ns / 1000000, step_ms = found->step_ns / 1000000;
  effects->notices.push_back(
      {Effects::Notice::Kind::kStraggler, found->rank,
       "worker " + std::to_string(found->rank) + " is a straggler: its tensors come " +
           std::to_string(lag_ms) + " ms after the first ones, and a step takes " +
           std::to_string(step_ms) +
           " ms. See its CPUs, its input and its link; bpslaunch --timeline says which",
       lag_ms, step_ms});
}

int64_t Watch::EndOverdue(Effects* effects) {
  const int64_t now_ns = effects->now.ns;
  const double limit = job_.options.timeouts.operation_timeout;
  int64_t oldest_ns = now_ns;
  for (const auto& [name, key] : keys_.by_name()) {
    const std::shared_ptr<Exchange> live = key->live;
    if (live == nullptr) continue;
    oldest_ns = std::min(oldest_ns, live->enqueued_ns);
    if (limit <= 0 || (now_ns - live->enqueued_ns) * 1e-9 < limit) continue;
    const std::string what = live->entry == nullptr ? "the scheduler has not placed it"
                                                    : std::to_string(live->parts_left) + " of " +
                                                          std::to_string(live->part_done.size()) +
                                                          " parts have no result";
    exchanges_->Finish(
        live,
        DeadlineExceeded(
            live->Name() + ": not done after " + std::to_string(static_cast<int64_t>(limit)) +
            " s (" + what +
            "); another worker has probably not sent it. BYTEPS_OPERATION_TIMEOUT sets the limit"),
        effects);
  }
  return oldest_ns;
}

void Watch::OnStallQuery(const StallQuery& query, Effects* effects) const {
  effects->messages.push_back(stalls_.Answer(query, exchanges_->last_ended(), effects->now.ns));
}

std::string Watch::OnStallNotice(const StallNotice& notice, const Moment& now) const {
  return stalls_.Text(notice, exchanges_->last_ended(), now.ns);
}

}  // namespace byteps

#include "cc/coordinator/state/joins.h"

#include <algorithm>
#include <string>
#include <utility>

#include "cc/base/store_rounds.h"

namespace byteps {
namespace {

// To which the worker pushes next.
uint64_t StoreOfClock(const Joined::Clock& clock) { return StoreOf(clock.next_round); }

}  // namespace

Joined Joins::Now() const {
  Joined now;
  now.last = last_;
  now.ranks = {joined_.begin(), joined_.end()};
  for (const auto& [rank, failed] : failed_)
    now.failed.insert(now.failed.end(), failed.begin(), failed.end());
  now.clocks = clocks_;
  return now;
}

Joined Joins::AllAgain() const {
  Joined all;
  all.clocks = clocks_;
  return all;
}

void Joins::AlignClocks() {
  std::map<std::pair<uint64_t, int32_t>, Joined::Clock> before;  // by key and worker
  for (const Joined::Clock& each : clocks_) before[{each.key, each.worker}] = each;
  std::map<uint64_t, uint64_t> highest;  // by key
  std::vector<Joined::Clock> aligned;
  for (auto& [rank, clocks] : std::exchange(reported_, {})) {
    for (Joined::Clock& each : clocks) {
      each.worker = rank;
      const Joined::Clock& known = before[{each.key, rank}];
      const bool is_same = known.next_round > 0 && StoreOfClock(known) == StoreOfClock(each);
      each.lead = is_same ? known.lead : 0;
      uint64_t& most = highest[each.key];
      most = std::max(most, each.next_round + each.lead);
      aligned.push_back(each);
    }
  }
  clocks_.clear();
  for (Joined::Clock& each : aligned) {
    Joined::Clock furthest = each;
    furthest.next_round = highest[each.key];
    if (StoreOfClock(furthest) != StoreOfClock(each)) continue;  // it is not in the newest store
    each.lead = furthest.next_round - each.next_round;
    clocks_.push_back(each);
  }
}

Status Joins::On(const Joined& joined, const JobPeer& from, CoordinatorEffects* effects) {
  if (joined_.count(from.rank) > 0) return InvalidArgument("joined twice");
  if (!leaver_.empty()) {
    Refuse(from, leaver_, effects);
    return OkStatus();
  }
  joined_.insert(from.rank);
  std::vector<Joined::Failed>& failed = failed_[from.rank];
  failed = joined.failed;
  for (Joined::Failed& each : failed) each.worker = from.rank;
  std::vector<Joined::Clock>& clocks = reported_[from.rank];
  for (const Joined::Clock& each : joined.clocks) {
    if (each.next_round > 0) clocks.push_back(each);
  }
  last_ = from.rank;
  if (static_cast<int32_t>(joined_.size()) < num_workers_) {
    peers_.SendToRole(Role::kServer, Now(), effects);
    return OkStatus();
  }
  AlignClocks();
  peers_.SendToRole(Role::kServer, AllAgain(), effects);
  // Nothing new, but they acknowledge it, and with it what was sent before.
  needed_update_ = updates_.TakeId();
  peers_.SendToRole(Role::kServer, TableUpdate{*needed_update_, {}}, effects);
  EndIfReady(effects);  // without servers
  return OkStatus();
}

void Joins::EndIfReady(CoordinatorEffects* effects) {
  if (!needed_update_.has_value() || updates_.acknowledged_by_all() < *needed_update_) return;
  needed_update_.reset();
  Joined over = Now();
  over.failed.clear();
  over.clocks.clear();
  peers_.SendToRole(Role::kWorker, over, effects);
  joined_.clear();
  failed_.clear();
}

void Joins::OnDeparted(const JobPeer& worker, CoordinatorEffects* effects) {
  if (leaver_.empty()) leaver_ = worker.name;
  if (needed_update_.has_value()) return;  // it had joined as all others
  for (const int32_t rank : joined_) {
    const JobPeer* const waits = peers_.Find(Role::kWorker, rank);
    if (waits != nullptr && rank != worker.rank) Refuse(*waits, worker.name, effects);
  }
  joined_.clear();
  failed_.clear();
  reported_.clear();
}

void Joins::Refuse(const JobPeer& worker, const std::string& leaver, CoordinatorEffects* effects) {
  Joined refused;
  refused.problem = leaver +
                    " has left the job, so that not all workers can join: every worker "
                    "has to call join before it shuts down";
  peers_.Send(worker, refused, effects);
}

void Joins::Greet(const JobPeer& server, CoordinatorEffects* effects) {
  if (!joined_.empty() && !needed_update_.has_value())
    peers_.Send(server, Now(), effects);
  else if (!clocks_.empty())
    peers_.Send(server, AllAgain(), effects);
}

}  // namespace byteps

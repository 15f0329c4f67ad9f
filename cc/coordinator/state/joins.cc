#include "cc/coordinator/state/joins.h"

#include <string>

namespace byteps {

Joined Joins::Now() const {
  Joined now;
  now.last = last_;
  now.ranks = {joined_.begin(), joined_.end()};
  for (const auto& [rank, failed] : failed_)
    now.failed.insert(now.failed.end(), failed.begin(), failed.end());
  return now;
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
  last_ = from.rank;
  if (static_cast<int32_t>(joined_.size()) < num_workers_) {
    peers_.SendToRole(Role::kServer, Now(), effects);
    return OkStatus();
  }
  peers_.SendToRole(Role::kServer, Joined(), effects);
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
}

void Joins::Refuse(const JobPeer& worker, const std::string& leaver, CoordinatorEffects* effects) {
  Joined refused;
  refused.problem = leaver +
                    " has left the job, so that not all workers can join: every worker "
                    "has to call join before it shuts down";
  peers_.Send(worker, refused, effects);
}

void Joins::Greet(const JobPeer& server, CoordinatorEffects* effects) {
  if (!joined_.empty() && !needed_update_.has_value()) peers_.Send(server, Now(), effects);
}

}  // namespace byteps

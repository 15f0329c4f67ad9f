#include "cc/coordinator/state/retuning.h"

#include <string>
#include <utility>

namespace byteps {

using Notice = CoordinatorEffects::Notice;

void Retuning::On(const LinkReport& report, const JobPeer& from, CoordinatorEffects* effects) {
  if (const auto sizes = tuning_.OnReport(from.rank, report)) Begin(*sizes, effects);
}

void Retuning::On(const RoundProgress& progress, const JobPeer& from, CoordinatorEffects* effects) {
  tuning_.OnRoundProgress(from.rank, progress);
  SendIfReady(effects);
}

void Retuning::OnDeparted(const JobPeer& worker, CoordinatorEffects* effects) {
  tuning_.OnDeparted(worker.rank);
  SendIfReady(effects);
}

void Retuning::Log(const TunedSizes& sizes, CoordinatorEffects* effects) const {
  const auto bytes = [](const char* what, uint64_t count) {
    return count == 0 ? "" : "; " + std::string(what) + ": " + std::to_string(count) + " bytes";
  };
  effects->notices.push_back({Notice::Level::kInfo,
                              "by what the workers' links carry, " + tuning_.Links() +
                                  bytes("in flight", sizes.credit_bytes) +
                                  bytes("longest part", sizes.part_bytes) +
                                  "; compression=\"auto\": " + (sizes.compresses ? "int8" : "none"),
                              "retuned",
                              std::nullopt,
                              {{"credit_bytes", static_cast<int64_t>(sizes.credit_bytes)},
                               {"part_bytes", static_cast<int64_t>(sizes.part_bytes)}}});
  if (!tuning_.LinksDiffer()) return;
  effects->notices.push_back(
      {Notice::Level::kWarning,
       "the slowest link holds up all workers: " + tuning_.Links() +
           "; look at its host, or say what links carry with BYTEPS_LINK_BYTES_PER_SECOND",
       "slow_link",
       std::nullopt,
       {}});
}

void Retuning::Begin(const TunedSizes& sizes, CoordinatorEffects* effects) {
  Log(sizes, effects);
  Retune retune;
  retune.credit_bytes = sizes.credit_bytes;
  retune.unsent_bytes = unsent_bytes_ = sizes.unsent_bytes;
  peers_.SendToRole(Role::kServer, retune, effects);
  TableUpdate update;
  update.update_id = updates_.next_id();
  update.entries = table_.CutAgain(sizes.part_bytes, sizes.compresses, update.update_id);
  if (update.entries.empty()) return peers_.SendToRole(Role::kWorker, retune, effects);
  declarations_.DropEncodedReply();
  for (const TableEntry& entry : update.entries) retune.cuts.push_back({entry, 0});
  retune_ = std::move(retune);
  needed_update_ = updates_.TakeId();
  peers_.SendToRole(Role::kServer, update, effects);
  peers_.SendToRole(Role::kWorker, PauseRounds{}, effects);
}

void Retuning::SendIfReady(CoordinatorEffects* effects) {
  if (!retune_.has_value() || !tuning_.all_paused() ||
      updates_.acknowledged_by_all() < needed_update_ || failover_.is_running())
    return;
  for (NewCut& cut : retune_->cuts) {
    cut.entry = table_.row(cut.entry).entry;
    cut.first_round = tuning_.FirstRoundOfAll(cut.entry.key);
  }
  peers_.SendToRole(Role::kWorker, *retune_, effects);
  retune_.reset();
}

}  // namespace byteps

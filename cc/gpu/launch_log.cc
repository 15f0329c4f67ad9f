#include "cc/gpu/launch_log.h"

#include <utility>

namespace byteps {

std::string PartRound::ToString() const {
  return "part " + std::to_string(part) + " of key " + std::to_string(key) + ", round " +
         std::to_string(round);
}

std::string LaunchEntry::ToString() const {
  static constexpr const char* kNames[] = {"reduce ", "broadcast ", "exchange ", "refuse "};
  return kNames[static_cast<int>(kind)] + part.ToString();
}

int32_t LocalOwner(const PartRound& part, int32_t local_size) {
  return static_cast<int32_t>((part.key + part.part) % static_cast<uint64_t>(local_size));
}

Status LaunchLog::Add(const LaunchReport& report) {
  if (report.local_rank < 0 || report.local_rank >= local_size_) {
    return Internal("local rank " + std::to_string(report.local_rank) + " is not one of the " +
                    std::to_string(local_size_) + " on this host");
  }
  for (const PartRound& part : report.parts) {
    BYTEPS_RETURN_IF_ERROR(report.kind == LaunchReport::Kind::kReady
                               ? AddReady(report.local_rank, part)
                               : AddReplied(report.local_rank, part));
  }
  return OkStatus();
}

Status LaunchLog::AddReady(int32_t local_rank, const PartRound& part) {
  Progress& progress = live_[part];
  if (progress.ready.empty()) {
    progress.round = part.round;
    progress.agreement = part.agreement;
    progress.ready.assign(local_size_, false);
  }
  if (progress.round != part.round || progress.ready[local_rank]) {
    return Internal("local rank " + std::to_string(local_rank) + " has " + part.ToString() +
                    " ready, but round " + std::to_string(progress.round) + " is on its way" +
                    (progress.ready[local_rank] ? " and it was ready for that already" : ""));
  }
  progress.ready[local_rank] = true;
  progress.agreed = progress.agreed && progress.agreement == part.agreement;
  if (++progress.ready_count < local_size_) return OkStatus();
  if (progress.agreed && results_from_ == ResultsFrom::kServers) {
    progress.reduced = true;
    appended_.entries.push_back({LaunchEntry::Kind::kReduce, part});
    return OkStatus();
  }
  appended_.entries.push_back(
      {progress.agreed ? LaunchEntry::Kind::kExchange : LaunchEntry::Kind::kRefuse, part});
  live_.erase(part);
  return OkStatus();
}

Status LaunchLog::AddReplied(int32_t local_rank, const PartRound& part) {
  const auto it = live_.find(part);
  const int32_t owner = LocalOwner(part, local_size_);
  if (owner != local_rank || it == live_.end() || it->second.round != part.round ||
      !it->second.reduced) {
    return Internal("local rank " + std::to_string(local_rank) + " has the result of " +
                    part.ToString() + ", which " +
                    (owner != local_rank ? "local rank " + std::to_string(owner) + " owns"
                                         : std::string("was not reduced")));
  }
  live_.erase(it);
  appended_.entries.push_back({LaunchEntry::Kind::kBroadcast, part});
  return OkStatus();
}

LogSlice LaunchLog::TakeNew() {
  LogSlice slice = std::move(appended_);
  appended_ = LogSlice();
  appended_.first = slice.first + slice.entries.size();
  return slice;
}

}  // namespace byteps

#include "cc/gpu/launch_log.h"

#include <algorithm>
#include <utility>

#include "cc/base/host_map.h"

namespace byteps {
namespace {

std::string Title(uint64_t key, uint64_t round) {
  return "key " + std::to_string(key) + ", round " + std::to_string(round);
}

std::string RankName(int32_t local_rank) { return "local rank " + std::to_string(local_rank); }

Status HasLeft(int32_t local_rank) {
  return FailedPrecondition(RankName(local_rank) +
                            " of this host has left the job, and the others waited for it. Every "
                            "worker has to exchange the same tensors before it shuts down.");
}

}  // namespace

std::string LaunchEntry::ToString() const {
  static constexpr const char* kNames[] = {"reduce", "broadcast", "exchange",
                                           "fail",   "end",       "reduce for all"};
  return std::string(kNames[static_cast<int>(kind)]) + " part " + std::to_string(part) + " of " +
         Title(key, round);
}

LaunchLog::LaunchLog(int32_t local_size, ResultsFrom results_from)
    : local_size_(local_size), results_from_(results_from), left_(local_size) {}

Status LaunchLog::Add(const LaunchReport& report) {
  if (report.local_rank < 0 || report.local_rank >= local_size_) {
    return Internal(RankName(report.local_rank) + " is not one of the " +
                    std::to_string(local_size_) + " on this host");
  }
  switch (report.kind) {
    case LaunchReport::Kind::kReady: return AddReady(report);
    case LaunchReport::Kind::kReplied: return AddReplied(report);
    case LaunchReport::Kind::kFailed: AddFailed(report); return OkStatus();
    case LaunchReport::Kind::kLeaving: AddLeaving(report.local_rank); return OkStatus();
  }
  return Internal(RankName(report.local_rank) + " sent a report of an unknown kind");
}

Status LaunchLog::AddReady(const LaunchReport& report) {
  // This rank comes late, and must be told again.
  if (HasFailed(report.key, report.round)) {
    Fail(report.key, report.round, failed_[report.key].reason);
    return OkStatus();
  }
  for (int32_t rank = 0; left_count_ > 0 && rank < local_size_; ++rank) {
    if (!left_[rank]) continue;
    Fail(report.key, report.round, HasLeft(rank));
    return OkStatus();
  }
  if (!EndOlderRound(report)) return OkStatus();
  Progress& progress = live_[report.key];
  if (progress.ready.empty()) {
    progress.round = report.round;
    progress.agreement = report.agreement;
    progress.ready.assign(local_size_, false);
    progress.rows.assign(local_size_, 0);
  }
  if (progress.round != report.round || progress.ready[report.local_rank]) {
    return Internal(
        RankName(report.local_rank) + " has " + Title(report.key, report.round) +
        " ready, but round " + std::to_string(progress.round) + " is in flight" +
        (progress.ready[report.local_rank] ? " and it was ready for that already" : ""));
  }
  progress.ready[report.local_rank] = true;
  progress.rows[report.local_rank] = report.rows;
  progress.all_take_shared = progress.all_take_shared && report.takes_shared;
  ++progress.ready_count;
  if (progress.agreement != report.agreement) {
    Fail(report.key, report.round,
         FailedPrecondition("the workers of this host disagree about it"));
  } else if (progress.ready_count == local_size_) {
    AppendAllReady(report, &progress);
  }
  return OkStatus();
}

// That it has done so, another thread of the rank may be about to report.
bool LaunchLog::EndOlderRound(const LaunchReport& report) {
  const auto it = live_.find(report.key);
  if (it == live_.end() || it->second.round == report.round) return true;
  if (it->second.ready[report.local_rank]) return true;  // which AddReady refuses
  const uint64_t older = std::min(it->second.round, report.round);
  const bool is_reported = older == report.round;
  Fail(report.key, older,
       FailedPrecondition("a worker of this host has given it up, and is in round " +
                          std::to_string(std::max(it->second.round, report.round)) + " already"));
  return !is_reported;
}

void LaunchLog::AddFailed(const LaunchReport& report) {
  // That a later round has failed is not enough: a rank that leaves a training reports those first.
  // An entry may come again, which changes nothing.
  const auto failed = failed_.find(report.key);
  if (failed != failed_.end() && failed->second.round == report.round) return;
  // Who gives a round up has no part in those before that it has not begun.
  const auto it = live_.find(report.key);
  if (it != live_.end() && it->second.round < report.round && !it->second.ready[report.local_rank])
    Fail(report.key, it->second.round, report.reason);
  Fail(report.key, report.round, report.reason);
}

void LaunchLog::AppendAllReady(const LaunchReport& report, Progress* progress) {
  if (results_from_ == ResultsFrom::kCollective) {
    appended_.entries.push_back(
        {LaunchEntry::Kind::kExchange, report.key, report.round, 0, OkStatus(), progress->rows});
    live_.erase(report.key);
    return;
  }
  const bool for_all = progress->all_take_shared;
  const auto kind = for_all ? LaunchEntry::Kind::kReduceForAll : LaunchEntry::Kind::kReduce;
  for (uint32_t part = 0; part < report.part_count; ++part)
    appended_.entries.push_back({kind, report.key, report.round, part, OkStatus()});
  if (for_all) {
    live_.erase(report.key);
    return;
  }
  progress->replied.assign(report.part_count, false);
  progress->parts_left = report.part_count;
}

Status LaunchLog::AddReplied(const LaunchReport& report) {
  if (HasFailed(report.key, report.round)) return OkStatus();
  const auto it = live_.find(report.key);
  const int32_t owner = LocalOwner(report.key, report.part, local_size_);
  if (owner != report.local_rank || it == live_.end() || it->second.round != report.round ||
      report.part >= it->second.replied.size() || it->second.replied[report.part]) {
    return Internal(
        RankName(report.local_rank) + " has the result of part " + std::to_string(report.part) +
        " of " + Title(report.key, report.round) + ", which " +
        (owner != report.local_rank ? RankName(owner) + " owns" : std::string("was not reduced")));
  }
  it->second.replied[report.part] = true;
  appended_.entries.push_back(
      {LaunchEntry::Kind::kBroadcast, report.key, report.round, report.part, OkStatus()});
  if (--it->second.parts_left == 0) live_.erase(it);
  return OkStatus();
}

void LaunchLog::AddLeaving(int32_t local_rank) {
  if (left_[local_rank]) return;
  left_[local_rank] = true;
  std::vector<std::pair<uint64_t, uint64_t>> waiting;
  for (const auto& [key, progress] : live_) {
    if (!progress.ready[local_rank]) waiting.emplace_back(key, progress.round);
  }
  for (const auto& [key, round] : waiting) Fail(key, round, HasLeft(local_rank));
  if (++left_count_ == local_size_) {
    appended_.entries.push_back({LaunchEntry::Kind::kEnd, 0, 0, 0, OkStatus()});
  }
}

void LaunchLog::Fail(uint64_t key, uint64_t round, const Status& reason) {
  appended_.entries.push_back({LaunchEntry::Kind::kFail, key, round, 0, reason});
  if (!HasFailed(key, round)) failed_[key] = {round, reason};
  const auto it = live_.find(key);
  if (it != live_.end() && it->second.round == round) live_.erase(it);
}

bool LaunchLog::HasFailed(uint64_t key, uint64_t round) const {
  const auto it = failed_.find(key);
  return it != failed_.end() && round <= it->second.round;
}

LogSlice LaunchLog::TakeNew() {
  LogSlice slice = std::move(appended_);
  appended_ = LogSlice();
  appended_.first = slice.first + slice.entries.size();
  return slice;
}

}  // namespace byteps

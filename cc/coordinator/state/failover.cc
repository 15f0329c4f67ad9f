#include "cc/coordinator/state/failover.h"

#include <algorithm>

#include "cc/base/members.h"

namespace byteps {

Failover::Failover(int32_t num_workers) : num_workers_(num_workers) {
  for (int32_t rank = 0; rank < num_workers; ++rank) workers_.insert(rank);
}

uint32_t Failover::Begin() {
  state_ = State::kAsking;
  awaited_ = workers_;
  standings_.clear();
  return ++version_;
}

void Failover::OnPartProgress(int32_t rank, const PartProgress& progress) {
  if (state_ != State::kAsking || progress.version != version_ || awaited_.erase(rank) == 0) return;
  for (const PartProgress::Part& part : progress.parts)
    standings_[{part.key, part.part}].push_back(
        {rank, part.next_round, part.has_result, part.has_earlier});
}

void Failover::OnDeparted(int32_t rank) {
  workers_.erase(rank);
  awaited_.erase(rank);
  results_.clear();
}

std::vector<RoundProgress::Tensor> Failover::OnResults(
    int32_t rank, const ResultProgress& progress,
    const std::function<size_t(uint64_t key)>& num_members) {
  std::vector<RoundProgress::Tensor> all_have;
  if (workers_.size() < num_workers_) return all_have;
  for (const RoundProgress::Tensor& tensor : progress.tensors) {
    Holders& holders = results_[tensor.key];
    if (tensor.next_round < holders.next_round) continue;  // it says so again, of a later round
    if (tensor.next_round > holders.next_round) holders = Holders();
    holders.next_round = tensor.next_round;
    holders.have_said.resize(num_workers_);
    if (!holders.have_said[rank]) ++holders.count;
    holders.have_said[rank] = true;
    if (holders.count < (num_members ? num_members(tensor.key) : num_workers_)) continue;
    all_have.push_back(tensor);
    results_.erase(tensor.key);
  }
  return all_have;
}

std::vector<PartsMoved::Part> Failover::Agree(const std::vector<TableEntry>& entries) const {
  std::set<std::pair<uint64_t, uint32_t>> moved;  // variants share their rounds
  std::map<uint64_t, Lag> lags;
  std::map<uint64_t, size_t> members;
  for (const TableEntry& entry : entries) {
    Lag& lag = lags[entry.key];
    const auto num_workers = static_cast<int32_t>(workers_.size());
    members[entry.key] = Members::Of(entry.tensor.name).Count(num_workers);
    if (entry.tensor.kind == ExchangeKind::kStore) lag = Lag::kServer;
    if (entry.tensor.IsQuorumSum()) lag = Lag::kTwoRounds;
    for (uint32_t part = 0; part < entry.parts.size(); ++part) {
      if (entry.parts[part].version == version_) moved.emplace(entry.key, part);
    }
  }
  std::vector<PartsMoved::Part> parts;
  for (const auto& key_and_part : moved) {
    const auto found = standings_.find(key_and_part);
    if (found == standings_.end()) continue;
    PartsMoved::Part agreed =
        AgreeOn(found->second, lags[key_and_part.first], members[key_and_part.first]);
    agreed.key = key_and_part.first;
    agreed.part = key_and_part.second;
    parts.push_back(agreed);
  }
  return parts;
}

PartsMoved::Part Failover::AgreeOn(const std::vector<Standing>& standings, Lag lag,
                                   size_t num_members) const {
  PartsMoved::Part agreed;
  // Who says nothing of the part has not come to it yet, which a quorum does not wait for.
  uint64_t slowest = standings.size() < num_members ? 0 : standings[0].next_round;
  for (const Standing& standing : standings) {
    agreed.next_round = std::max(agreed.next_round, standing.next_round);
    slowest = std::min(slowest, standing.next_round);
  }
  const bool is_lacked = lag == Lag::kServer || slowest < agreed.next_round;
  const bool is_earlier_lacked = lag == Lag::kTwoRounds && slowest + 1 < agreed.next_round;
  for (const Standing& standing : standings) {
    const bool is_first = standing.next_round == agreed.next_round;
    const bool is_second = standing.next_round + 1 == agreed.next_round;
    if (is_lacked && agreed.result_from < 0 && is_first && standing.has_result)
      agreed.result_from = standing.worker;
    const bool has_earlier =
        (is_first && standing.has_earlier) || (is_second && standing.has_result);
    if (is_earlier_lacked && agreed.earlier_from < 0 && has_earlier)
      agreed.earlier_from = standing.worker;
  }
  return agreed;
}

}  // namespace byteps

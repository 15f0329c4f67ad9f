#include "cc/coordinator/state/failover.h"

#include <algorithm>

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

void Failover::OnHeld(int32_t rank, const PartsHeld& held) {
  if (state_ != State::kAsking || held.version != version_ || awaited_.erase(rank) == 0) return;
  for (const PartsHeld::Part& part : held.parts)
    standings_[{part.key, part.part}].push_back({rank, part.next_round, part.has_result});
}

void Failover::OnDeparted(int32_t rank) {
  workers_.erase(rank);
  awaited_.erase(rank);
  results_.clear();
}

std::vector<RoundsHeld::Tensor> Failover::OnResults(int32_t rank, const ResultsHeld& held) {
  std::vector<RoundsHeld::Tensor> all_have;
  if (workers_.size() < num_workers_) return all_have;
  for (const RoundsHeld::Tensor& tensor : held.tensors) {
    Holders& holders = results_[tensor.key];
    if (tensor.next_round < holders.next_round) continue;  // it says so again, of a later round
    if (tensor.next_round > holders.next_round) holders = Holders();
    holders.next_round = tensor.next_round;
    holders.have_said.resize(num_workers_);
    if (!holders.have_said[rank]) ++holders.count;
    holders.have_said[rank] = true;
    if (holders.count < num_workers_) continue;
    all_have.push_back(tensor);
    results_.erase(tensor.key);
  }
  return all_have;
}

std::vector<PartsMoved::Part> Failover::Agree(const std::vector<TableEntry>& entries) const {
  std::set<std::pair<uint64_t, uint32_t>> moved;  // variants share their rounds
  std::set<uint64_t> stores;
  for (const TableEntry& entry : entries) {
    if (entry.tensor.kind == ExchangeKind::kStore) stores.insert(entry.key);
    for (uint32_t part = 0; part < entry.parts.size(); ++part) {
      if (entry.parts[part].version == version_) moved.emplace(entry.key, part);
    }
  }
  std::vector<PartsMoved::Part> parts;
  for (const auto& key_and_part : moved) {
    const auto found = standings_.find(key_and_part);
    if (found == standings_.end()) continue;
    PartsMoved::Part agreed;
    agreed.key = key_and_part.first;
    agreed.part = key_and_part.second;
    for (const Standing& standing : found->second)
      agreed.next_round = std::max(agreed.next_round, standing.next_round);
    // The server itself lacks what a store holds.
    bool is_lacked = stores.count(agreed.key) > 0;
    int32_t has_it = -1;
    for (const Standing& standing : found->second) {
      is_lacked = is_lacked || standing.next_round < agreed.next_round;
      if (has_it < 0 && standing.next_round == agreed.next_round && standing.has_result)
        has_it = standing.worker;
    }
    if (is_lacked) agreed.result_from = has_it;
    parts.push_back(agreed);
  }
  return parts;
}

}  // namespace byteps

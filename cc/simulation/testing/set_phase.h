// SetPhase: how many rounds each worker of a SetProgram has until it joins, or to the end, and
// which of them some leave out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "cc/simulation/testing/event_schedule.h"
#include "cc/simulation/testing/set_tensor.h"

namespace byteps {

struct SetPhase {
  // `joins`: workers have different numbers of rounds, and some none.
  static SetPhase Drawn(EventSchedule* schedule, const std::vector<SetTensor>& tensors,
                        int32_t num_workers, bool joins) {
    SetPhase phase;
    phase.rounds.assign(num_workers, 1 + static_cast<int>(schedule->Draw(7)));
    for (int& each : phase.rounds) {
      if (joins) each = static_cast<int>(schedule->Draw(7));
    }
    phase.joined_ns.assign(num_workers, 0);
    const int most = *std::max_element(phase.rounds.begin(), phase.rounds.end());
    phase.give_up.assign(most, std::vector<int32_t>(tensors.size(), -1));
    const bool gives_up = schedule->Chance(0.6);
    for (int round = 0; round < most; ++round) {
      for (size_t i = 0; i < tensors.size(); ++i) {
        if (!gives_up || !schedule->Chance(0.1)) continue;
        const SetTensor::Ranks taking_part = phase.TakingPart(tensors[i], round);
        if (!taking_part.empty())
          phase.give_up[round][i] = taking_part[schedule->Draw(taking_part.size() - 1)];
      }
    }
    return phase;
  }

  // The members who have not joined before this round.
  SetTensor::Ranks TakingPart(const SetTensor& tensor, int round) const {
    SetTensor::Ranks ranks;
    for (const int32_t rank : tensor.members) {
      if (rounds[rank] > round) ranks.push_back(rank);
    }
    return ranks;
  }

  std::vector<int> rounds;                    // of each worker
  std::vector<std::vector<int32_t>> give_up;  // by round and tensor: who does; -1: nobody
  std::vector<int64_t> joined_ns;             // when each has, 0: not yet
  std::optional<int32_t> last;                // who was the last to join
};

}  // namespace byteps

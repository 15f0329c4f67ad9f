// Participants: who takes part in the rounds of a part.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/base/host_map.h"
#include "cc/base/members.h"
#include "cc/wire/control.h"

namespace byteps {

struct Participants {
  int32_t num_workers = 1;    // that take part: what an average is divided by
  int32_t contributions = 1;  // one of each worker, or of each host
  int32_t root = 0;           // kBroadcast: who pushes the value
  // How many rounds a worker may be behind; what it has missed is kept as long as it is needed.
  int32_t max_lag = 0;
  // The workers that contribute, in the order in which their contributions are added; empty: in
  // the order in which they arrive.
  std::vector<int32_t> order = {};
  Members members = {};  // those workers
};

// Who pushes a part in each round. `in_rank_order`: contributions are added in that order.
Participants ParticipantsOf(const TableEntry& entry, uint32_t part, const HostMap& hosts,
                            bool in_rank_order = false);

}  // namespace byteps

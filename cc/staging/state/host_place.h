// HostPlace: where a worker is on its host, and which other workers are there.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/base/host_map.h"
#include "cc/base/job.h"
#include "cc/base/tensor_description.h"
#include "cc/gpu/launch_log.h"

namespace byteps {

// Does not change.
struct HostPlace {
  HostPlace(const JobDescription& job, int32_t rank);

  bool alone() const { return local_size == 1; }
  // Whether no server takes part.
  bool is_one_host() const { return results_from == ResultsFrom::kCollective; }

  // Whether this host has what a broadcast sends.
  bool RootIsHere(const TensorDescription& tensor) const;
  // The local rank that exchanges a part with the servers.
  int32_t OwnerOf(uint64_t key, uint32_t part) const { return LocalOwner(key, part, local_size); }

  const int32_t rank;
  const HostMap hosts;
  const bool shares_host;              // with other workers, or others share theirs (per_host)
  const std::vector<int32_t> workers;  // of this host, by local rank; this one only if not shared
  const int32_t local_rank;
  const int32_t local_size;
  const ResultsFrom results_from;
};

}  // namespace byteps

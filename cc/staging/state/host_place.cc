#include "cc/staging/state/host_place.h"

namespace byteps {
namespace {

std::vector<int32_t> GroupOf(const HostMap& hosts, const JobDescription& job, int32_t rank) {
  if (!job.gpus_share_hosts) return {rank};
  return hosts.WorkersOn(hosts.HostOf(rank));
}

ResultsFrom SourceOf(const JobDescription& job, const HostMap& hosts, int32_t local_size) {
  const bool is_only_worker = job.num_workers() == 1 && job.num_servers() == 0;
  const bool is_only_host = local_size == hosts.num_workers() && local_size > 1;
  return is_only_worker || is_only_host ? ResultsFrom::kCollective : ResultsFrom::kServers;
}

}  // namespace

HostPlace::HostPlace(const JobDescription& job, int32_t rank)
    : rank(rank),
      hosts(job.worker_hosts),
      shares_host(job.gpus_share_hosts),
      workers(GroupOf(hosts, job, rank)),
      local_rank(shares_host ? hosts.LocalRank(rank) : 0),
      local_size(static_cast<int32_t>(workers.size())),
      results_from(SourceOf(job, hosts, local_size)) {}

bool HostPlace::RootIsHere(const TensorDescription& tensor) const {
  if (!shares_host) return tensor.root_rank == rank;
  return hosts.HostOf(tensor.root_rank) == hosts.HostOf(rank);
}

}  // namespace byteps

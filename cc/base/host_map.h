// HostMap: which workers share a host, and which of them speaks for it.
//
// The GPUs of a host reduce a tensor among themselves first (TensorDescription::per_host). Of each
// part the servers then get one contribution from each host, and the workers of a host take turns:
// the one whose local rank is (key + part) modulo their number exchanges the part (protocol rule
// 18). Hosts may have different numbers of workers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace byteps {

// The local rank that exchanges a part for its host.
inline int32_t LocalOwner(uint64_t key, uint32_t part, int32_t local_size) {
  return static_cast<int32_t>((key + part) % static_cast<uint64_t>(local_size));
}

class HostMap {
 public:
  // `worker_hosts`: the host id of each worker, by rank. Local ranks are in the order of ranks.
  explicit HostMap(const std::vector<std::string>& worker_hosts);

  // Hosts are numbered in the order of their first worker.
  int32_t num_hosts() const { return static_cast<int32_t>(hosts_.size()); }
  int32_t num_workers() const { return static_cast<int32_t>(places_.size()); }
  int32_t HostOf(int32_t worker) const { return places_[worker].host; }
  int32_t LocalRank(int32_t worker) const { return places_[worker].local_rank; }
  // The workers of a host, by local rank.
  const std::vector<int32_t>& WorkersOn(int32_t host) const { return hosts_[host]; }

  // The worker of `host` that exchanges a part of a tensor that is per_host.
  int32_t OwnerOn(int32_t host, uint64_t key, uint32_t part) const {
    const std::vector<int32_t>& workers = hosts_[host];
    return workers[LocalOwner(key, part, static_cast<int32_t>(workers.size()))];
  }

 private:
  struct Place {
    int32_t host = 0;
    int32_t local_rank = 0;
  };

  std::vector<std::vector<int32_t>> hosts_;
  std::vector<Place> places_;  // by worker
};

}  // namespace byteps

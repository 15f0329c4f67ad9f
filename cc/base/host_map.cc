#include "cc/base/host_map.h"

#include <unordered_map>

namespace byteps {

HostMap::HostMap(const std::vector<std::string>& worker_hosts) {
  std::unordered_map<std::string, int32_t> numbers;
  for (const std::string& host : worker_hosts) {
    const auto [it, is_new] = numbers.emplace(host, static_cast<int32_t>(hosts_.size()));
    if (is_new) hosts_.emplace_back();
    std::vector<int32_t>& workers = hosts_[it->second];
    const auto worker = static_cast<int32_t>(places_.size());
    places_.push_back({it->second, static_cast<int32_t>(workers.size())});
    workers.push_back(worker);
  }
}

}  // namespace byteps

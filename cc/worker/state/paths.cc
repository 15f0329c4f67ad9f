#include "cc/worker/state/paths.h"

#include <algorithm>
#include <iterator>
#include <tuple>
#include <utility>

namespace byteps {
namespace {

// Rounds that were given up, for a server that may not have heard of it; it does not need old ones.
constexpr size_t kMostGivenUp = 4096;

}  // namespace

void ServerPath::Open(const std::shared_ptr<Connection>& opened) {
  connection = opened;
  was_open = true;
  is_ready = false;
  receives.clear();
}

uint64_t ServerPath::Break() {
  connection = nullptr;
  receives.clear();
  is_ready = false;
  has_broken = true;
  return std::exchange(in_flight_bytes, 0);
}

bool ServerPath::EndReceive(const FrameHeader& reply) {
  const bool had_begun = !receives.empty() && std::get<0>(receives.back()) == reply.key &&
                         std::get<2>(receives.back()) == reply.part;
  if (had_begun) receives.pop_back();
  return had_begun;
}

bool ServerLink::is_open() const {
  return std::any_of(paths.begin(), paths.end(),
                     [](const ServerPath& path) { return path.connection != nullptr; });
}

ServerPath* ServerLink::LeastLoadedPath() {
  ServerPath* best = nullptr;
  for (ServerPath& path : paths) {
    if (path.is_ready && (best == nullptr || path.in_flight_bytes < best->in_flight_bytes))
      best = &path;
  }
  return best;
}

std::shared_ptr<Connection> ServerLink::ReadyConnection() const {
  for (const ServerPath& path : paths) {
    if (path.is_ready) return path.connection;
  }
  return nullptr;
}

void ServerLink::RememberWithdrawal(const OutgoingFrame& withdrawal) {
  if (given_up.size() >= kMostGivenUp) given_up.pop_front();
  given_up.push_back(withdrawal);
}

void ServerLink::Restart(Endpoint at, std::string on_host) {
  is_lost = false;
  ++lives;
  endpoint = std::move(at);
  host = std::move(on_host);
  parked.clear();
  given_up.clear();
}

void ServerLinks::Prepare(const JobDescription& job) {
  links_ = std::vector<ServerLink>(job.num_servers());
  for (int32_t server = 0; server < job.num_servers(); ++server) {
    ServerLink& link = links_[server];
    link.endpoint = job.server_endpoints[server];
    link.host = job.server_hosts[server];
    link.paths.resize(job.PathsPerServer());
  }
}

ServerPath* ServerLinks::Find(const Source& source) {
  ServerPath& path = links_[source.server].paths[source.path];
  return path.connection.get() == source.connection ? &path : nullptr;
}

bool ServerLinks::HasOtherThan(int32_t server) const {
  for (size_t other = 0; other < links_.size(); ++other) {
    if (static_cast<int32_t>(other) != server && !links_[other].is_lost) return true;
  }
  return false;
}

std::vector<std::shared_ptr<Connection>> ServerLinks::connections() const {
  std::vector<std::shared_ptr<Connection>> all;
  for (const ServerLink& link : links_) {
    for (const ServerPath& path : link.paths) {
      if (path.connection != nullptr) all.push_back(path.connection);
    }
  }
  return all;
}

std::vector<PathCounters> ServerLinks::counters() const {
  std::vector<PathCounters> counters;
  for (size_t server = 0; server < links_.size(); ++server) {
    for (size_t path = 0; path < links_[server].paths.size(); ++path) {
      const ServerPath& from = links_[server].paths[path];
      counters.push_back({static_cast<int32_t>(server), static_cast<uint32_t>(path),
                          from.pushed_bytes, from.received_bytes, from.in_flight_bytes,
                          from.reconnects});
    }
  }
  return counters;
}

void ServerLinks::DropResults(const FrameHeader& reply, int32_t server, Dropped* dropped) {
  std::vector<OutgoingFrame>& results = links_[server].results;
  const auto kept =
      std::partition(results.begin(), results.end(), [&](const OutgoingFrame& result) {
        return result.header.key != reply.key || result.header.part != reply.part ||
               result.header.round >= reply.round;
      });
  for (auto it = kept; it != results.end(); ++it) dropped->push_back(std::move(it->keep_alive));
  results.erase(kept, results.end());
}

std::vector<OutgoingFrame> ServerLinks::TakeMoved(
    const std::function<bool(const OutgoingFrame& frame)>& stays, Dropped* dropped) {
  std::vector<OutgoingFrame> moved;
  for (ServerLink& link : links_) {
    const auto first = std::stable_partition(link.given_up.begin(), link.given_up.end(), stays);
    std::move(first, link.given_up.end(), std::back_inserter(moved));
    link.given_up.erase(first, link.given_up.end());
    const auto result = std::stable_partition(link.results.begin(), link.results.end(), stays);
    for (auto it = result; it != link.results.end(); ++it)
      dropped->push_back(std::move(it->keep_alive));
    link.results.erase(result, link.results.end());
  }
  return moved;
}

void ServerLinks::Clear(Dropped* dropped) {
  for (ServerLink& link : links_) {
    link.parked.clear();
    for (OutgoingFrame& frame : std::exchange(link.results, {}))
      dropped->push_back(std::move(frame.keep_alive));
  }
}

}  // namespace byteps

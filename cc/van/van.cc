#include "cc/van/van.h"

#include <algorithm>
#include <cstring>

namespace byteps {
namespace {

constexpr double kLeastPingSeconds = 2;
constexpr double kLeastSilenceSeconds = 10;

}  // namespace

size_t PayloadSink::Take(const void* data, size_t bytes, uint64_t remaining) {
  const uint8_t* const from = static_cast<const uint8_t*>(data);
  size_t taken = 0;
  while (taken < bytes) {
    const Span span = Prepare(remaining - taken);
    const size_t piece = std::min(bytes - taken, span.bytes);
    std::memcpy(span.data, from + taken, piece);
    Commit(piece);
    taken += piece;
  }
  return taken;
}

bool Van::IsRefusedAt(const Endpoint& endpoint, double timeout) const {
  return byteps::IsRefusedAt(endpoint, timeout);
}

VanOptions VanOptionsOf(const EngineOptions& options) {
  VanOptions van;
  van.io_threads = options.network.io_threads;
  // Shorter ones, as of tests, would take a busy host for a broken network.
  van.ping_interval = std::max(kLeastPingSeconds, options.timeouts.heartbeat_interval);
  van.silence_timeout = std::max(kLeastSilenceSeconds, options.timeouts.heartbeat_timeout);
  van.read_peer_memory = options.network.read_peer_memory;
  van.ports = options.network.ports;
  van.secret = options.security.secret;
  van.tls = options.security.tls;
  van.transport = options.network.transport;
  van.rdma = options.network.rdma;
  return van;
}

std::unique_ptr<Van> NewVan(const VanOptions& options) {
  return options.transport == Transport::kTcp ? NewTcpVan(options) : NewRdmaVan(options);
}

}  // namespace byteps

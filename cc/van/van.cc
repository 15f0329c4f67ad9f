#include "cc/van/van.h"

#include <algorithm>
#include <cstring>

namespace byteps {

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

VanOptions VanOptionsOf(const EngineOptions& options) {
  VanOptions van;
  van.io_threads = options.io_threads;
  van.read_peer_memory = options.read_peer_memory;
  van.secret = options.secret;
  van.tls = options.tls;
  van.transport = options.transport;
  van.rdma = options.rdma;
  return van;
}

std::unique_ptr<Van> NewVan(const VanOptions& options) {
  return options.transport == Transport::kTcp ? NewTcpVan(options) : NewRdmaVan(options);
}

}  // namespace byteps

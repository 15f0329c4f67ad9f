#include "cc/van/tcp/peer_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>

namespace byteps {

PeerMemory::PeerMemory(bool offered)
    : offered_(offered), nonce_(std::make_unique<Nonce>(RandomNonce())) {}

MemoryOffer PeerMemory::offer() const {
  if (!offered_) return {};
  return {getpid(), reinterpret_cast<uint64_t>(nonce_->data())};
}

bool PeerMemory::Probe(const MemoryOffer& offer, const Nonce& nonce) {
  if (!offered_ || offer.pid <= 0) return false;
  pid_ = offer.pid;
  Nonce found{};
  if (!Read(offer.address, found.data(), found.size()).ok() || found != nonce) pid_ = 0;
  return readable();
}

Status PeerMemory::Read(uint64_t address, void* to, size_t bytes) const {
  auto* next = static_cast<uint8_t*>(to);
  while (bytes > 0) {
    const iovec local{next, bytes};
    const iovec remote{reinterpret_cast<void*>(address), bytes};
    const ssize_t read = process_vm_readv(static_cast<pid_t>(pid_), &local, 1, &remote, 1, 0);
    if (read <= 0)
      return Unavailable(ErrnoMessage("read the memory of process " + std::to_string(pid_)));
    next += read;
    address += read;
    bytes -= read;
  }
  return OkStatus();
}

}  // namespace byteps

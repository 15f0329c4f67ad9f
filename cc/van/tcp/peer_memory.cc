#include "cc/van/tcp/peer_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace byteps {
namespace {

ssize_t ReadOf(int64_t pid, const iovec* local, const iovec* remote, int count) {
  return process_vm_readv(static_cast<pid_t>(pid), local, count, remote, count, 0);
}

}  // namespace

PeerMemory::PeerMemory(bool offered)
    : offered_(offered), nonce_(std::make_unique<Nonce>(RandomNonce())) {}

MemoryOffer PeerMemory::offer() const {
  if (!offered_) return {};
  return {getpid(), reinterpret_cast<uint64_t>(nonce_->data())};
}

bool PeerMemory::Probe(const MemoryOffer& offer, const Nonce& nonce) {
  if (!offered_ || offer.pid <= 0) return false;
  pid_ = offer.pid;
  nonce_address_ = offer.address;
  peer_nonce_ = nonce;
  Nonce found{};
  if (!Read(offer.address, found.data(), found.size()).ok()) pid_ = 0;
  return readable();
}

void PeerMemory::Withdraw() {
  // Another process reads it: it must be erased before anything that follows.
  for (uint8_t& byte : *nonce_) __atomic_store_n(&byte, uint8_t{0}, __ATOMIC_SEQ_CST);
}

Status PeerMemory::Read(uint64_t address, void* to, size_t bytes) const {
  auto* next = static_cast<uint8_t*>(to);
  while (bytes > 0) {
    Nonce found{};
    const iovec local[] = {{next, bytes}, {found.data(), found.size()}};
    const iovec remote[] = {{reinterpret_cast<void*>(address), bytes},
                            {reinterpret_cast<void*>(nonce_address_), found.size()}};
    // In this order. It may end early, then without the number.
    const ssize_t read = ReadOf(pid_, local, remote, 2);
    const auto number_bytes = static_cast<ssize_t>(found.size());
    const bool has_number = read == static_cast<ssize_t>(bytes) + number_bytes;
    if (read <= 0 || (!has_number && ReadOf(pid_, &local[1], &remote[1], 1) != number_bytes))
      return Unavailable(ErrnoMessage("read the memory of process " + std::to_string(pid_)));
    if (found != peer_nonce_)
      return Unavailable("process " + std::to_string(pid_) + " has withdrawn its memory");
    const size_t of_payload = std::min<size_t>(read, bytes);
    next += of_payload;
    address += of_payload;
    bytes -= of_payload;
  }
  return OkStatus();
}

}  // namespace byteps

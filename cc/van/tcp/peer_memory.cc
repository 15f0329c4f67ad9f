#include "cc/van/tcp/peer_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "cc/van/tcp/peer_process.h"

namespace byteps {
namespace {

ssize_t ReadOf(int64_t pid, const iovec* local, const iovec* remote, int count) {
  return process_vm_readv(static_cast<pid_t>(pid), local, count, remote, count, 0);
}

// All that connections of this process lend, by the ends of their sockets.
struct AllLent {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<LentMemory>> by_ends;
};

AllLent& GetAllLent() {
  static AllLent* const all = new AllLent;  // outlives every connection
  return *all;
}

}  // namespace

std::shared_ptr<LentMemory> LentMemory::Over(const Socket& socket) {
  const std::string ends = LocalAddress(socket) + " " + PeerAddress(socket);
  std::shared_ptr<LentMemory> lent(new LentMemory(ends));
  AllLent& all = GetAllLent();
  std::lock_guard<std::mutex> lock(all.mutex);
  all.by_ends[ends] = lent;
  return lent;
}

LentMemory::~LentMemory() {
  AllLent& all = GetAllLent();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto it = all.by_ends.find(ends_);
  // The socket's addresses may be in use again.
  if (it != all.by_ends.end() && it->second.expired()) all.by_ends.erase(it);
}

std::shared_ptr<LentMemory> LentMemory::OfPeer(const Socket& socket) {
  AllLent& all = GetAllLent();
  std::lock_guard<std::mutex> lock(all.mutex);
  const auto it = all.by_ends.find(PeerAddress(socket) + " " + LocalAddress(socket));
  return it == all.by_ends.end() ? nullptr : it->second.lock();
}

LentMemory::Loan LentMemory::Borrow() {
  Loan loan(mutex_);
  if (is_withdrawn_) loan.unlock();
  return loan;
}

void LentMemory::Withdraw() {
  std::lock_guard<std::shared_mutex> lock(mutex_);
  is_withdrawn_ = true;
}

PeerMemory::PeerMemory(bool is_allowed, bool lends)
    : is_allowed_(is_allowed), lends_(lends), nonce_(RandomNonce()) {}

MemoryOffer PeerMemory::Offer(const Socket& socket, const Nonce& number) {
  if (!is_allowed_ || !PeerIsOnThisHost(socket)) return {};
  shown_ = std::make_unique<Nonce>(number);
  if (lends_) lent_ = LentMemory::Over(socket);
  return {getpid(), reinterpret_cast<uint64_t>(shown_->data())};
}

bool PeerMemory::Probe(const Socket& socket, const MemoryOffer& offer) {
  if (shown_ == nullptr || !HoldsOtherEnd(offer.pid, socket)) return false;
  if (offer.pid == getpid()) of_peer_ = LentMemory::OfPeer(socket);
  pid_ = offer.pid;
  number_address_ = offer.address;
  Nonce found{};
  if (!Read(offer.address, found.data(), found.size()).ok()) pid_ = 0;
  return readable();
}

void PeerMemory::Withdraw() {
  // Another process reads it: it must be erased before anything that follows.
  if (shown_ != nullptr) {
    for (uint8_t& byte : *shown_) __atomic_store_n(&byte, uint8_t{0}, __ATOMIC_SEQ_CST);
  }
  if (lent_ != nullptr) lent_->Withdraw();
}

Status PeerMemory::Read(uint64_t address, void* to, size_t bytes) const {
  auto* next = static_cast<uint8_t*>(to);
  while (bytes > 0) {
    Nonce found{};
    const iovec local[] = {{next, bytes}, {found.data(), found.size()}};
    const iovec remote[] = {{reinterpret_cast<void*>(address), bytes},
                            {reinterpret_cast<void*>(number_address_), found.size()}};
    // In this order. It may end early, then without the number.
    const ssize_t read = ReadOf(pid_, local, remote, 2);
    const auto number_bytes = static_cast<ssize_t>(found.size());
    const bool has_number = read == static_cast<ssize_t>(bytes) + number_bytes;
    if (read <= 0 || (!has_number && ReadOf(pid_, &local[1], &remote[1], 1) != number_bytes))
      return Unavailable(ErrnoMessage("read the memory of process " + std::to_string(pid_)));
    if (found != nonce_)
      return Unavailable("process " + std::to_string(pid_) + " has withdrawn its memory");
    const size_t of_payload = std::min<size_t>(read, bytes);
    next += of_payload;
    address += of_payload;
    bytes -= of_payload;
  }
  return OkStatus();
}

}  // namespace byteps

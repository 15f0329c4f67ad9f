// PeerMemory: reading a payload where the sender keeps it, instead of sending it through a socket,
// when both processes run on one host.
//
// One copy, by the receiver's process_vm_readv, straight to where the bytes belong; no segment with
// a name, so that nothing is left behind by a process that dies (protocol rule 17). Whether the
// kernel allows it (same user, same process namespace, Yama) is found out by really reading
// something: a random number in the peer's memory.
//
// The number is read again with every piece of a payload, after it. Its owner erases it before it
// gives up what the peer may be reading: a connection can end at any time, and what was read from
// memory that has a new use already must not get into a sum.
#ifndef TF_BYTEPS_CC_VAN_TCP_PEER_MEMORY_H_
#define TF_BYTEPS_CC_VAN_TCP_PEER_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include "cc/base/status.h"
#include "cc/wire/handshake.h"

namespace byteps {

// One connection's access to its peer's memory, and what the peer needs for the other direction.
class PeerMemory {
 public:
  // `offered`: the peer may try to read this process's memory.
  explicit PeerMemory(bool offered);

  // For the Hello or Welcome: the number to find, and where. The object must not end before the
  // connection.
  const Nonce& nonce() const { return *nonce_; }
  MemoryOffer offer() const;

  // Tries to read `nonce` at the place that the peer offers.
  bool Probe(const MemoryOffer& offer, const Nonce& nonce);
  bool readable() const { return pid_ != 0; }

  // What the peer reads from now on is worth nothing. Any thread.
  void Withdraw();

  // UNAVAILABLE when the peer is gone or has withdrawn its memory; `to` may have changed then.
  Status Read(uint64_t address, void* to, size_t bytes) const;

 private:
  bool offered_;
  std::unique_ptr<Nonce> nonce_;
  // Of the peer, once a probe has succeeded.
  int64_t pid_ = 0;
  uint64_t nonce_address_ = 0;
  Nonce peer_nonce_{};
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_VAN_TCP_PEER_MEMORY_H_

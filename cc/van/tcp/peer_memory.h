// PeerMemory: reading a payload where the sender keeps it, instead of sending it through a socket,
// when both processes run on one host.
//
// One copy, by the receiver's process_vm_readv, straight to where the bytes belong; no segment with
// a name, so that nothing is left behind by a process that dies (protocol rule 17). Whether the
// kernel allows it (same user, same process namespace, Yama) is found out by really reading
// something: a random number.
//
// A peer that could name any process would have this side read it. So nothing is taken without the
// job's secret, or from another host's address; the process it names must hold the other end of the
// connection (peer_process.h); and the number is one that this side has drawn for the connection,
// which the peer puts where it says (protocol rule 33).
//
// The number is read again with every piece of a payload, after it. The peer erases it before it
// gives up what may be read: a connection can end at any time, and what was read from memory that
// has a new use already must not get into a sum.
//
// Where both ends are in one process, a worker and the server beside it, nothing has to be read:
// the receiver uses the bytes where they are, while it holds a loan.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>

#include "cc/base/status.h"
#include "cc/van/tcp/socket.h"
#include "cc/wire/handshake.h"

namespace byteps {

// What one end of a connection lends to the other end, if that is in this process. The two know
// each other by the addresses of the socket: what a peer says could be a lie. Thread-safe.
class LentMemory {
 public:
  static std::shared_ptr<LentMemory> Over(const Socket& socket);
  ~LentMemory();

  // What the other end of this socket lends; null if it is in another process, or lends nothing.
  static std::shared_ptr<LentMemory> OfPeer(const Socket& socket);

  // To be held while the memory is used; without the lock if it has been withdrawn.
  using Loan = std::shared_lock<std::shared_mutex>;
  Loan Borrow();

  // Waits until nobody holds a loan.
  void Withdraw();

 private:
  explicit LentMemory(std::string ends) : ends_(std::move(ends)) {}

  const std::string ends_;
  std::shared_mutex mutex_;
  bool is_withdrawn_ = false;
};

// One connection's access to its peer's memory, and what the peer needs for the other direction.
class PeerMemory {
 public:
  // `is_allowed`: either process may read the other's memory. `lends`: also where both are the same
  // process, without reading.
  PeerMemory(bool is_allowed, bool lends);

  // For the Hello or Challenge: the number that the peer has to put into its memory.
  const Nonce& nonce() const { return nonce_; }

  // Shows `number`, the peer's, in this process's memory, and says where, for the Response or
  // Welcome. No offer if the peer at the other end of `socket` has no address of this host. The
  // object must not end before the connection.
  MemoryOffer Offer(const Socket& socket, const Nonce& number);

  // After Offer. Tries to read this side's number at the place that the peer offers.
  bool Probe(const Socket& socket, const MemoryOffer& offer);
  bool readable() const { return pid_ != 0; }

  // Null if it is in another process: then Read.
  const std::shared_ptr<LentMemory>& of_peer() const { return of_peer_; }

  // What the peer reads from now on is worth nothing. Any thread. Waits for one in this process to
  // end what it reads.
  void Withdraw();

  // UNAVAILABLE when the peer is lost or has withdrawn its memory; `to` may have changed then.
  Status Read(uint64_t address, void* to, size_t bytes) const;

 private:
  bool is_allowed_;
  bool lends_;
  const Nonce nonce_;
  std::unique_ptr<Nonce> shown_;  // the peer's number; null: no offer
  // Of the peer, once a probe has succeeded.
  int64_t pid_ = 0;
  uint64_t number_address_ = 0;
  std::shared_ptr<LentMemory> lent_;
  std::shared_ptr<LentMemory> of_peer_;
};

}  // namespace byteps

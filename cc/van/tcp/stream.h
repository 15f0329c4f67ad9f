// Stream: the bytes of one connection, in clear or in TLS.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <memory>
#include <string>

#include "cc/base/status.h"
#include "cc/van/counters.h"
#include "cc/van/tcp/socket.h"
#include "cc/van/tls/tls.h"

namespace byteps {

// Owns a non-blocking socket. Send and Receive may be called at once, each by one thread at a time,
// and not together with anything else. `peer` is a name for messages. UNAVAILABLE: the connection
// has ended or is broken; see tls.h for other errors.
class Stream {
 public:
  // `tls`: null for bytes in clear; outlives the stream.
  Stream(Socket socket, const TlsContext* tls, TlsSide side, AtomicVanCounters* counters);

  // For the side that connects: blocks until bytes may be exchanged.
  Status Handshake(const std::string& peer, const SocketWait& wait);

  // Sets how many bytes have been received; less than `bytes`: there are no more at present.
  Status Receive(const std::string& peer, void* data, size_t bytes, size_t* received);

  // Sets how many bytes the network has taken; less than all: no more at present. The next call
  // must go on with those that follow.
  Status Send(const std::string& peer, const iovec* pieces, size_t count, size_t* sent);

  // Something has been taken from the socket that Receive has not returned: the socket itself will
  // not tell of it.
  bool HoldsBytes() const { return tls_ != nullptr && tls_->HoldsBytes(); }

  // Somebody has said something.
  bool has_received() const { return tls_ != nullptr && tls_->has_received(); }

  // If the peer expects an answer in clear, though this side uses TLS, it gets one.
  bool FallBackToClear();

  // Exactly `bytes`. Both block.
  Status SendExactly(const std::string& peer, const void* data, size_t bytes,
                     const SocketWait& wait);
  Status ReceiveExactly(const std::string& peer, void* data, size_t bytes, const SocketWait& wait);

  const Socket& socket() const { return socket_; }
  void Reset();

 private:
  Socket socket_;
  AtomicVanCounters* counters_;
  std::unique_ptr<TlsSession> tls_;
};

}  // namespace byteps

// Small wrappers of socket calls: owning descriptor, addresses in words, connect with a deadline.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cc/base/job.h"
#include "cc/base/status.h"

namespace byteps {

// Owns a descriptor that is close-on-exec and is closed in forked children (base/fork.h).
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor);
  ~Socket() { Reset(); }
  Socket(Socket&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  Socket& operator=(Socket&& other) noexcept;

  int get() const { return descriptor_; }
  bool valid() const { return descriptor_ >= 0; }
  void Reset();

 private:
  int descriptor_ = -1;
};

// Non-blocking, no Nagle delay, little unsent data in the kernel (protocol rule 14). It breaks when
// the other host has acknowledged nothing for `silence_timeout` seconds; while it is idle the
// kernel asks once a minute, which also keeps it known to address translators and firewalls.
Status PrepareDataSocket(const Socket& socket, double silence_timeout);

// So much, instead.
void LimitUnsent(const Socket& socket, uint64_t bytes);

// Binds and listens; port 0 picks a free one. `bound` is the address that was given with the port
// in use.
Status ListenOn(const std::string& address, uint16_t port, Socket* socket, Endpoint* bound);

// The same at the first of these ports that is free; there is at least one.
Status ListenOnOneOf(const std::string& address, const std::vector<uint16_t>& ports, Socket* socket,
                     Endpoint* bound);

// How long the functions below wait.
struct SocketWait {
  int64_t deadline_ns = 0;
  // Asked twice a second; an error ends the wait with it. May be null.
  std::function<Status()> in_vain = nullptr;
};

// One attempt to connect. UNAVAILABLE if nobody listens there; `refused`, if given, says whether
// the host itself has said so.
Status ConnectTo(const Endpoint& endpoint, const SocketWait& wait, Socket* socket,
                 bool* refused = nullptr);

// Waits for POLLIN or POLLOUT; DEADLINE_EXCEEDED, beginning with `what`, when the time is over.
Status WaitFor(const Socket& socket, short events, const SocketWait& wait, const char* what);

// The shortest of the round trips that the kernel has seen lately, in nanoseconds; 0: unknown.
uint64_t LeastRoundTripNanos(const Socket& socket);

// "10.0.0.7:40312" of the other end and of this one.
std::string PeerAddress(const Socket& socket);
std::string LocalAddress(const Socket& socket);

// The numeric address in "10.0.0.7:40312".
std::string HostOf(const std::string& address);

}  // namespace byteps

// Which process is at the other end of a connection within this host, by what the kernel says.
#pragma once

#include <cstdint>

#include "cc/van/tcp/socket.h"

namespace byteps {

// Whether the peer's address is one of this host's own, in this network namespace.
bool PeerIsOnThisHost(const Socket& socket);

// Whether process `pid` has the socket at the other end of this one. False also if that cannot be
// found out, as of another user's process.
bool HoldsOtherEnd(int64_t pid, const Socket& socket);

}  // namespace byteps

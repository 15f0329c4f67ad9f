// In a file of its own: the C library's tcp_info, in a header that excludes this one, ends before
// what is wanted here.
#include <linux/tcp.h>
#include <sys/socket.h>

#include "cc/van/tcp/socket.h"

namespace byteps {

uint64_t LeastRoundTripNanos(const Socket& socket) {
  tcp_info info{};
  socklen_t bytes = sizeof(info);
  constexpr int kTcp = 6;  // IPPROTO_TCP, whose header is the other one
  if (getsockopt(socket.get(), kTcp, TCP_INFO, &info, &bytes) != 0) return 0;
  constexpr uint32_t kNever = ~uint32_t{0};
  return info.tcpi_min_rtt == kNever ? 0 : uint64_t{info.tcpi_min_rtt} * 1000;
}

}  // namespace byteps

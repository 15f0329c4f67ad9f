#include "cc/van/tcp/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "cc/base/clock.h"
#include "cc/base/fork.h"

namespace byteps {
namespace {

constexpr int kListenBacklog = 512;
constexpr uint64_t kUnsentBytes = 512 * 1024;
constexpr int64_t kLookMilliseconds = 500;

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// "10.0.0.7:40312" of an end; `get` is getpeername or getsockname.
std::string AddressOf(const Socket& socket, int (*get)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  char host[NI_MAXHOST] = "?";
  char port[NI_MAXSERV] = "?";
  if (get(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    getnameinfo(reinterpret_cast<sockaddr*>(&address), size, host, sizeof(host), port, sizeof(port),
                NI_NUMERICHOST | NI_NUMERICSERV);
  }
  return std::string(host) + ":" + port;
}

Status Resolve(const std::string& host, uint16_t port, bool passive, AddressList* addresses) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = passive ? AI_PASSIVE : 0;
  addrinfo* result = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &result);
  if (error != 0) return Unavailable("cannot resolve \"" + host + "\": " + gai_strerror(error));
  *addresses = AddressList(result, freeaddrinfo);
  return OkStatus();
}

uint16_t BoundPort(int descriptor) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  getsockname(descriptor, reinterpret_cast<sockaddr*>(&address), &size);
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

}  // namespace

Socket::Socket(int descriptor) : descriptor_(descriptor) { CloseInForkedChild(descriptor); }

Socket& Socket::operator=(Socket&& other) noexcept {
  if (this != &other) {
    Reset();
    descriptor_ = other.descriptor_;
    other.descriptor_ = -1;
  }
  return *this;
}

void Socket::Reset() {
  if (descriptor_ < 0) return;
  ForgetDescriptor(descriptor_);
  close(descriptor_);
  descriptor_ = -1;
}

Status PrepareDataSocket(const Socket& socket) {
  const int flags = fcntl(socket.get(), F_GETFL);
  if (flags < 0 || fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    return Internal(ErrnoMessage("fcntl"));
  const int one = 1;
  if (setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0) {
    return Internal(ErrnoMessage("setsockopt TCP_NODELAY"));
  }
  LimitUnsent(socket, kUnsentBytes);
  return OkStatus();
}

void LimitUnsent(const Socket& socket, uint64_t bytes) {
  const int limit = static_cast<int>(std::min<uint64_t>(bytes, 1 << 30));
  // Kernels without it only schedule less sharply.
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NOTSENT_LOWAT, &limit, sizeof(limit));
}

Status ListenOn(const std::string& address, uint16_t port, Socket* socket, Endpoint* bound) {
  AddressList addresses(nullptr, freeaddrinfo);
  BYTEPS_RETURN_IF_ERROR(Resolve(address, port, true, &addresses));
  const std::string where = Endpoint{address, port}.ToString();
  Status status = Unavailable("cannot listen on " + where);
  for (const addrinfo* info = addresses.get(); info != nullptr; info = info->ai_next) {
    const int descriptor = ::socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) {
      status = ResourceExhausted(ErrnoMessage("socket"));
      continue;
    }
    Socket candidate(descriptor);
    const int one = 1;
    setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(descriptor, info->ai_addr, info->ai_addrlen) != 0 ||
        listen(descriptor, kListenBacklog) != 0) {
      status = Unavailable(ErrnoMessage("cannot listen on " + where));
      continue;
    }
    *bound = {address, BoundPort(descriptor)};
    *socket = std::move(candidate);
    return OkStatus();
  }
  return status;
}

Status WaitFor(const Socket& socket, short events, const SocketWait& wait, const char* what) {
  while (true) {
    const int64_t left_ms = (wait.deadline_ns - MonotonicNanos()) / 1000000;
    if (left_ms <= 0) return DeadlineExceeded(std::string(what) + ": timed out");
    pollfd entry{socket.get(), events, 0};
    const int ready = poll(&entry, 1, static_cast<int>(std::min(left_ms, kLookMilliseconds)));
    if (ready > 0) return OkStatus();
    if (ready < 0 && errno != EINTR) return Internal(ErrnoMessage("poll"));
    if (wait.in_vain != nullptr) BYTEPS_RETURN_IF_ERROR(wait.in_vain());
  }
}

Status ConnectTo(const Endpoint& endpoint, const SocketWait& wait, Socket* socket, bool* refused) {
  AddressList addresses(nullptr, freeaddrinfo);
  BYTEPS_RETURN_IF_ERROR(Resolve(endpoint.host, endpoint.port, false, &addresses));
  Status status = Unavailable("no address for " + endpoint.ToString());
  bool all_refuse = true;
  for (const addrinfo* info = addresses.get(); info != nullptr; info = info->ai_next) {
    const int descriptor = ::socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) return ResourceExhausted(ErrnoMessage("socket"));
    Socket candidate(descriptor);
    if (connect(descriptor, info->ai_addr, info->ai_addrlen) != 0 && errno != EINPROGRESS) {
      all_refuse = all_refuse && errno == ECONNREFUSED;
      status = Unavailable(ErrnoMessage("connect to " + endpoint.ToString()));
      continue;
    }
    BYTEPS_RETURN_IF_ERROR(WaitFor(candidate, POLLOUT, wait, "connect"));
    socklen_t size = sizeof(errno);
    getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &errno, &size);
    if (errno != 0) {
      all_refuse = all_refuse && errno == ECONNREFUSED;
      status = Unavailable(ErrnoMessage("connect to " + endpoint.ToString()));
      continue;
    }
    *socket = std::move(candidate);
    return OkStatus();
  }
  if (refused != nullptr) *refused = all_refuse;
  return status;
}

std::string LocalAddress(const Socket& socket) { return AddressOf(socket, getsockname); }

std::string PeerAddress(const Socket& socket) { return AddressOf(socket, getpeername); }

std::string HostOf(const std::string& address) { return address.substr(0, address.rfind(':')); }

}  // namespace byteps

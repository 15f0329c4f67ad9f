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
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "cc/base/clock.h"
#include "cc/base/descriptors.h"
#include "cc/base/fork.h"

namespace byteps {
namespace {

constexpr int kListenBacklog = 4096;  // the kernel's own limit may be lower
constexpr uint64_t kUnsentBytes = 512 * 1024;
constexpr int kKeepaliveSeconds = 60;
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

Status Resolve(const std::string& host, uint16_t port, int flags, AddressList* addresses) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags;
  addrinfo* result = nullptr;
  const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &result);
  if (error != 0) return Unavailable("cannot resolve \"" + host + "\": " + gai_strerror(error));
  *addresses = AddressList(result, freeaddrinfo);
  return OkStatus();
}

// What a thread that looks a name up leaves for the one that waits for it, if it still does.
struct Lookup {
  std::mutex mutex;
  std::condition_variable changed;
  bool is_done = false;  // guarded, as the rest
  Status status;
  AddressList addresses{nullptr, freeaddrinfo};
};

// As Resolve, for as long as `wait` allows. The system's own limit can be minutes, and cannot be
// set: then a thread of its own is left behind until that is over.
Status ResolveWithin(const std::string& host, uint16_t port, const SocketWait& wait,
                     AddressList* addresses) {
  // Nobody has to be asked about digits.
  if (Resolve(host, port, AI_NUMERICHOST, addresses).ok()) return OkStatus();
  const auto lookup = std::make_shared<Lookup>();
  std::thread([lookup, host, port] {
    AddressList found(nullptr, freeaddrinfo);
    const Status status = Resolve(host, port, 0, &found);
    std::lock_guard<std::mutex> lock(lookup->mutex);
    lookup->status = status;
    lookup->addresses = std::move(found);
    lookup->is_done = true;
    lookup->changed.notify_all();
  }).detach();
  std::unique_lock<std::mutex> lock(lookup->mutex);
  while (!lookup->is_done) {
    const int64_t left_ns = wait.deadline_ns - MonotonicNanos();
    if (left_ns <= 0)
      return DeadlineExceeded("cannot resolve \"" + host + "\": the name server does not answer");
    lookup->changed.wait_for(
        lock, std::chrono::nanoseconds(std::min(left_ns, kLookMilliseconds * 1000000)));
    if (!lookup->is_done && wait.in_vain != nullptr) {
      lock.unlock();
      BYTEPS_RETURN_IF_ERROR(wait.in_vain());
      lock.lock();
    }
  }
  *addresses = std::move(lookup->addresses);
  return lookup->status;
}

Status NoSocket() {
  const std::string why = ErrnoMessage("socket");
  return ResourceExhausted(why + " (" + DescriptorsInWords() + ")");
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

Status PrepareDataSocket(const Socket& socket, double silence_timeout) {
  const int flags = fcntl(socket.get(), F_GETFL);
  if (flags < 0 || fcntl(socket.get(), F_SETFL, flags | O_NONBLOCK) != 0)
    return Internal(ErrnoMessage("fcntl"));
  const int one = 1;
  if (setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) != 0) {
    return Internal(ErrnoMessage("setsockopt TCP_NODELAY"));
  }
  // Kernels without one of these notice an end later.
  const auto milliseconds = static_cast<unsigned>(silence_timeout * 1000);
  setsockopt(socket.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, &milliseconds, sizeof(milliseconds));
  setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
  for (const int option : {TCP_KEEPIDLE, TCP_KEEPINTVL})
    setsockopt(socket.get(), IPPROTO_TCP, option, &kKeepaliveSeconds, sizeof(kKeepaliveSeconds));
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
  BYTEPS_RETURN_IF_ERROR(Resolve(address, port, AI_PASSIVE, &addresses));
  const std::string where = Endpoint{address, port}.ToString();
  Status status = Unavailable("cannot listen on " + where);
  for (const addrinfo* info = addresses.get(); info != nullptr; info = info->ai_next) {
    const int descriptor = ::socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) {
      status = NoSocket();
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

Status ListenOnOneOf(const std::string& address, const std::vector<uint16_t>& ports, Socket* socket,
                     Endpoint* bound) {
  Status status;
  for (const uint16_t port : ports) {
    status = ListenOn(address, port, socket, bound);
    if (status.ok()) return status;
  }
  return Unavailable("none of the " + std::to_string(ports.size()) + " ports from " +
                     std::to_string(ports.front()) + " to " + std::to_string(ports.back()) +
                     " can be used: " + status.message());
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
  BYTEPS_RETURN_IF_ERROR(ResolveWithin(endpoint.host, endpoint.port, wait, &addresses));
  Status status = Unavailable("no address for " + endpoint.ToString());
  bool all_refuse = true;
  for (const addrinfo* info = addresses.get(); info != nullptr; info = info->ai_next) {
    const int descriptor = ::socket(info->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) return NoSocket();
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

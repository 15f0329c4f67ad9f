#include "cc/van/tcp/stream.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace byteps {

Stream::Stream(Socket socket, const TlsContext* tls, TlsSide side, AtomicVanCounters* counters)
    : socket_(std::move(socket)), counters_(counters) {
  if (tls != nullptr) tls_ = std::make_unique<TlsSession>(*tls, socket_.get(), side, counters);
}

Status Stream::Handshake(const std::string& peer, const SocketWait& wait) {
  while (tls_ != nullptr) {
    short wants = 0;
    BYTEPS_RETURN_IF_ERROR(tls_->Handshake(peer, &wants));
    if (wants == 0) break;
    BYTEPS_RETURN_IF_ERROR(WaitFor(socket_, wants, wait, "TLS handshake"));
  }
  return OkStatus();
}

Status Stream::Receive(const std::string& peer, void* data, size_t bytes, size_t* received) {
  if (tls_ != nullptr) return tls_->Receive(peer, data, bytes, received);
  *received = 0;
  const ssize_t result = recv(socket_.get(), data, bytes, 0);
  if (result == 0) return Unavailable(peer + " closed the connection");
  if (result < 0) {
    if (errno == EAGAIN || errno == EINTR) return OkStatus();  // epoll and poll will tell again
    return Unavailable(ErrnoMessage("receive from " + peer));
  }
  counters_->wire_bytes_received += result;
  *received = result;
  return OkStatus();
}

Status Stream::Send(const std::string& peer, const iovec* pieces, size_t count, size_t* sent) {
  if (tls_ != nullptr) return tls_->Send(peer, pieces, count, sent);
  *sent = 0;
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(pieces);
  message.msg_iovlen = count;
  ssize_t result;
  do {
    result = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
  } while (result < 0 && errno == EINTR);
  if (result < 0) {
    if (errno == EAGAIN) return OkStatus();
    return Unavailable(ErrnoMessage("send to " + peer));
  }
  counters_->wire_bytes_sent += result;
  *sent = result;
  return OkStatus();
}

bool Stream::FallBackToClear() {
  if (tls_ == nullptr || !tls_->peer_said_hello_in_clear()) return false;
  tls_ = nullptr;
  return true;
}

Status Stream::SendExactly(const std::string& peer, const void* data, size_t bytes,
                           const SocketWait& wait) {
  iovec rest{const_cast<void*>(data), bytes};
  while (rest.iov_len > 0) {
    BYTEPS_RETURN_IF_ERROR(WaitFor(socket_, POLLOUT, wait, "send"));
    size_t sent = 0;
    BYTEPS_RETURN_IF_ERROR(Send(peer, &rest, 1, &sent));
    rest = {static_cast<char*>(rest.iov_base) + sent, rest.iov_len - sent};
  }
  return OkStatus();
}

Status Stream::ReceiveExactly(const std::string& peer, void* data, size_t bytes,
                              const SocketWait& wait) {
  char* next = static_cast<char*>(data);
  while (true) {
    size_t received = 0;
    BYTEPS_RETURN_IF_ERROR(Receive(peer, next, bytes, &received));
    next += received;
    bytes -= received;
    if (bytes == 0) return OkStatus();
    BYTEPS_RETURN_IF_ERROR(WaitFor(socket_, POLLIN, wait, "receive"));
  }
}

void Stream::Reset() {
  tls_ = nullptr;
  socket_.Reset();
}

}  // namespace byteps

// For tests: the sockets of a TCP proxy on this host.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>

#include "cc/base/job.h"

namespace byteps {

// Listens in front of `target`. Only endpoint() may be called by several threads at once.
class ProxyListener {
 public:
  explicit ProxyListener(const Endpoint& target) : target_(target) {
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_in address = Address(0);
    EXPECT_EQ(bind(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(fd_, 64), 0);
    socklen_t size = sizeof(address);
    getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    endpoint_ = {"127.0.0.1", ntohs(address.sin_port)};
  }
  ~ProxyListener() { Close(); }
  ProxyListener(const ProxyListener&) = delete;
  ProxyListener& operator=(const ProxyListener&) = delete;

  const Endpoint& endpoint() const { return endpoint_; }
  int fd() const { return fd_; }  // for poll

  // Takes a connection and makes one to the target; both are the caller's. False: none is there, or
  // the target takes none.
  bool Accept(int* from, int* to) {
    *from = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (*from < 0) return false;
    *to = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = Address(target_.port);
    if (connect(*to, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
      close(*from);
      close(*to);
      return false;
    }
    for (const int end : {*from, *to}) {
      const int one = 1;
      setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
      fcntl(end, F_SETFL, fcntl(end, F_GETFL) | O_NONBLOCK);
    }
    return true;
  }

  // The port is free, and refuses. Idempotent.
  void Close() {
    if (fd_ >= 0) close(fd_);
    fd_ = -1;
  }

 private:
  static sockaddr_in Address(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  const Endpoint target_;
  Endpoint endpoint_;
  int fd_ = -1;
};

}  // namespace byteps

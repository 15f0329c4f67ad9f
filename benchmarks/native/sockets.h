// The few socket calls that the bare programs share. Errors end the program.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace byteps {

inline void Check(bool ok, const char* what) {
  if (ok) return;
  std::perror(what);
  std::exit(1);
}

inline sockaddr_in Loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = port;
  return address;
}

// A listening socket on a free port; `address` becomes where it listens.
inline int Listen(sockaddr_in* address) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Check(listener >= 0, "socket");
  *address = Loopback(0);
  socklen_t length = sizeof(*address);
  Check(bind(listener, reinterpret_cast<sockaddr*>(address), length) == 0, "bind");
  Check(listen(listener, 8) == 0, "listen");
  Check(getsockname(listener, reinterpret_cast<sockaddr*>(address), &length) == 0, "getsockname");
  return listener;
}

inline void SendAtOnce(int connection) {
  const int on = 1;
  Check(setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on)) == 0, "TCP_NODELAY");
}

inline int Connect(const sockaddr_in& address) {
  const int connection = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  Check(connection >= 0, "socket");
  Check(connect(connection, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0,
        "connect");
  SendAtOnce(connection);
  return connection;
}

inline int Accept(int listener) {
  const int connection = accept(listener, nullptr, nullptr);
  Check(connection >= 0, "accept");
  SendAtOnce(connection);
  return connection;
}

inline void SendAll(int connection, const void* data, size_t bytes) {
  const char* next = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(connection, next, bytes, MSG_NOSIGNAL);
    Check(sent > 0, "send");
    next += sent;
    bytes -= sent;
  }
}

inline void ReceiveAll(int connection, void* data, size_t bytes) {
  char* next = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t received = recv(connection, next, bytes, 0);
    Check(received > 0, "recv");
    next += received;
    bytes -= received;
  }
}

}  // namespace byteps

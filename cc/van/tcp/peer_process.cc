#include "cc/van/tcp/peer_process.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>

namespace byteps {
namespace {

// One end of a connection. An IPv4 address as IPv6 has it ("::ffff:10.0.0.7"): the two ends of one
// connection may show it either way.
struct End {
  std::array<uint8_t, 16> address{};
  uint16_t port = 0;

  bool operator==(const End& other) const { return address == other.address && port == other.port; }
};

std::array<uint8_t, 16> Mapped(const void* ipv4) {
  std::array<uint8_t, 16> address{};
  address[10] = address[11] = 0xff;
  std::memcpy(&address[12], ipv4, 4);
  return address;
}

bool EndOf(const sockaddr* address, End* end) {
  if (address->sa_family == AF_INET) {
    const auto* const ipv4 = reinterpret_cast<const sockaddr_in*>(address);
    *end = {Mapped(&ipv4->sin_addr), ntohs(ipv4->sin_port)};
    return true;
  }
  if (address->sa_family != AF_INET6) return false;
  const auto* const ipv6 = reinterpret_cast<const sockaddr_in6*>(address);
  std::memcpy(end->address.data(), &ipv6->sin6_addr, end->address.size());
  end->port = ntohs(ipv6->sin6_port);
  return true;
}

bool EndOf(const Socket& socket, int (*get)(int, sockaddr*, socklen_t*), End* end) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  return get(socket.get(), generic, &size) == 0 && EndOf(generic, end);
}

bool IsLoopback(const std::array<uint8_t, 16>& address) {
  in6_addr ipv6;
  std::memcpy(&ipv6, address.data(), address.size());
  return IN6_IS_ADDR_LOOPBACK(&ipv6) || (IN6_IS_ADDR_V4MAPPED(&ipv6) && address[12] == 127);
}

// "0100007F:1F90", or 32 digits for IPv6: words in this machine's order, as the kernel has them.
bool ParseEnd(const std::string& text, End* end) {
  const size_t colon = text.find(':');
  if (colon != 8 && colon != 32) return false;
  std::array<uint8_t, 16> address{};
  for (size_t digit = 0; digit < colon; digit += 8) {
    const auto word =
        static_cast<uint32_t>(std::strtoul(text.substr(digit, 8).c_str(), nullptr, 16));
    std::memcpy(&address[digit / 2], &word, sizeof(word));
  }
  end->address = colon == 8 ? Mapped(address.data()) : address;
  end->port = static_cast<uint16_t>(std::strtoul(text.c_str() + colon + 1, nullptr, 16));
  return true;
}

// The inode of the connected socket with these ends; "": there is none.
std::string InodeOf(const End& local, const End& remote) {
  for (const char* const path : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    std::ifstream file(path);
    std::string line;
    while (std::getline(file, line)) {
      char from[40], to[40], inode[24];
      // Number, local, remote, state, queues, timer, retransmits, user, time-out, inode.
      constexpr char kFields[] = " %*s %39s %39s %*s %*s %*s %*s %*s %*s %23s";
      if (std::sscanf(line.c_str(), kFields, from, to, inode) != 3) continue;
      End a, b;
      if (ParseEnd(from, &a) && ParseEnd(to, &b) && a == local && b == remote) return inode;
    }
  }
  return "";
}

}  // namespace

bool PeerIsOnThisHost(const Socket& socket) {
  End peer;
  if (!EndOf(socket, getpeername, &peer)) return false;
  if (IsLoopback(peer.address)) return true;
  ifaddrs* interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0) return false;
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(interfaces, freeifaddrs);
  for (const ifaddrs* one = interfaces; one != nullptr; one = one->ifa_next) {
    End own;
    if (one->ifa_addr != nullptr && EndOf(one->ifa_addr, &own) && own.address == peer.address)
      return true;
  }
  return false;
}

bool HoldsOtherEnd(int64_t pid, const Socket& socket) {
  End local, remote;
  if (pid <= 0 || !EndOf(socket, getsockname, &local) || !EndOf(socket, getpeername, &remote))
    return false;
  const std::string inode = InodeOf(remote, local);
  if (inode.empty() || inode == "0") return false;
  const std::string wanted = "socket:[" + inode + "]";
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  const std::unique_ptr<DIR, int (*)(DIR*)> descriptors(opendir(folder.c_str()), closedir);
  if (descriptors == nullptr) return false;
  char target[64];
  while (const dirent* const entry = readdir(descriptors.get())) {
    const ssize_t size =
        readlinkat(dirfd(descriptors.get()), entry->d_name, target, sizeof(target));
    if (size > 0 && wanted == std::string(target, size)) return true;
  }
  return false;
}

}  // namespace byteps

// For tests: a TCP proxy that passes bytes on and cuts connections after so many of them: in the
// middle of whatever is on the way.
#ifndef TF_BYTEPS_CC_ENGINE_CUTTING_PROXY_H_
#define TF_BYTEPS_CC_ENGINE_CUTTING_PROXY_H_

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <list>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cc/base/job.h"

namespace byteps {

class CuttingProxy {
 public:
  // In front of `target`. Cuts nothing yet.
  CuttingProxy(const Endpoint& target, uint64_t seed) : target_(target), random_(seed) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_in address = Address(0);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 64), 0);
    socklen_t size = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    endpoint_ = {"127.0.0.1", ntohs(address.sin_port)};
    thread_ = std::thread([this] { Run(); });
  }
  ~CuttingProxy() {
    stopping_ = true;
    thread_.join();
    close(listener_);
  }

  const Endpoint& endpoint() const { return endpoint_; }

  // From now on every connection, also one that is open, is cut after 1 to `most` bytes; 0: none.
  void CutWithin(uint64_t most) { most_ = most; }
  int cuts() const { return cuts_; }

 private:
  struct Pair {
    int ends[2];
    std::string waiting[2];  // for ends[i]
    uint64_t left = 0;       // until it is cut; 0: not decided yet
    bool over = false;
  };

  static sockaddr_in Address(uint16_t port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return address;
  }

  void Run() {
    while (!stopping_) {
      std::vector<pollfd> polled = {{listener_, POLLIN, 0}};
      for (const Pair& pair : pairs_) {
        for (int end = 0; end < 2; ++end) {
          const short out = pair.waiting[end].empty() ? 0 : POLLOUT;
          const short in = pair.waiting[1 - end].empty() ? POLLIN : 0;
          polled.push_back({pair.ends[end], static_cast<short>(out | in), 0});
        }
      }
      poll(polled.data(), polled.size(), 20);
      size_t index = 1;
      for (Pair& pair : pairs_) {
        for (int end = 0; end < 2; ++end, ++index) {
          if (polled[index].revents != 0) Move(&pair, end);
        }
      }
      pairs_.remove_if([this](const Pair& pair) {
        if (pair.over) Close(pair);
        return pair.over;
      });
      if (polled[0].revents != 0) Accept();
    }
    for (const Pair& pair : pairs_) Close(pair);
  }

  void Accept() {
    Pair pair;
    pair.ends[0] = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (pair.ends[0] < 0) return;
    pair.ends[1] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = Address(target_.port);
    pair.over =
        connect(pair.ends[1], reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0;
    for (const int end : pair.ends) {
      const int one = 1;
      setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
      fcntl(end, F_SETFL, fcntl(end, F_GETFL) | O_NONBLOCK);
    }
    pairs_.push_back(std::move(pair));
  }

  void Move(Pair* pair, int end) {
    std::string& out = pair->waiting[end];
    if (!out.empty()) {
      const ssize_t sent = send(pair->ends[end], out.data(), out.size(), MSG_NOSIGNAL);
      if (sent > 0) out.erase(0, sent);
      if (sent < 0 && errno != EAGAIN) pair->over = true;
      if (pair->left == 1 && out.empty()) Cut(pair);
    }
    std::string& in = pair->waiting[1 - end];
    if (!in.empty() || pair->left == 1 || pair->over) return;
    char buffer[16384];
    const uint64_t most = most_;
    if (pair->left == 0 && most > 0)
      pair->left = 2 + std::uniform_int_distribution<uint64_t>(0, most - 1)(random_);
    const size_t room =
        pair->left == 0 ? sizeof(buffer) : std::min<uint64_t>(sizeof(buffer), pair->left - 1);
    const ssize_t received = recv(pair->ends[end], buffer, room, 0);
    if (received == 0 || (received < 0 && errno != EAGAIN)) pair->over = true;
    if (received <= 0) return;
    in.assign(buffer, received);
    if (pair->left > 0) pair->left -= received;
  }

  void Cut(Pair* pair) {
    pair->over = true;
    ++cuts_;
  }

  // Half of them with a reset, which takes back what has not been read.
  void Close(const Pair& pair) {
    const linger at_once{1, 0};
    const bool reset = std::uniform_int_distribution<int>(0, 1)(random_) == 0;
    for (const int end : pair.ends) {
      if (reset) setsockopt(end, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
      close(end);
    }
  }

  const Endpoint target_;
  Endpoint endpoint_;
  int listener_ = -1;
  std::atomic<uint64_t> most_{0};
  std::atomic<int> cuts_{0};
  std::atomic<bool> stopping_{false};
  // The thread's.
  std::mt19937_64 random_;
  std::list<Pair> pairs_;
  std::thread thread_;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_ENGINE_CUTTING_PROXY_H_

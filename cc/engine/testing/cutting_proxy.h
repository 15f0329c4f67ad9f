// For tests: a TCP proxy that passes bytes on and cuts connections after so many of them: in the
// middle of whatever is in flight.
#pragma once

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <list>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cc/engine/testing/proxy_listener.h"

namespace byteps {

class CuttingProxy {
 public:
  // In front of `target`. Cuts nothing yet.
  CuttingProxy(const Endpoint& target, uint64_t seed) : listener_(target), random_(seed) {
    thread_ = std::thread([this] { Run(); });
  }
  ~CuttingProxy() {
    stopping_ = true;
    thread_.join();
  }

  const Endpoint& endpoint() const { return listener_.endpoint(); }

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

  void Run() {
    while (!stopping_) {
      std::vector<pollfd> polled = {{listener_.fd(), POLLIN, 0}};
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
    if (listener_.Accept(&pair.ends[0], &pair.ends[1])) pairs_.push_back(pair);
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

  ProxyListener listener_;
  std::atomic<uint64_t> most_{0};
  std::atomic<int> cuts_{0};
  std::atomic<bool> stopping_{false};
  // The thread's.
  std::mt19937_64 random_;
  std::list<Pair> pairs_;
  std::thread thread_;
};

}  // namespace byteps

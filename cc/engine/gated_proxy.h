// For tests: a TCP proxy between one worker and one server that stops passing bytes on after so
// many of them, in either direction, and can end as a killed process does.
#ifndef TF_BYTEPS_CC_ENGINE_GATED_PROXY_H_
#define TF_BYTEPS_CC_ENGINE_GATED_PROXY_H_

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "cc/base/job.h"

namespace byteps {

class GatedProxy {
 public:
  static constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();

  explicit GatedProxy(const Endpoint& target) : target_(target) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_in address = Address(0);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 64), 0);
    socklen_t size = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    endpoint_ = {"127.0.0.1", ntohs(address.sin_port)};
    thread_ = std::thread([this] { Run(); });
  }
  ~GatedProxy() {
    Die();
    thread_.join();
  }

  const Endpoint& endpoint() const { return endpoint_; }

  // From now on so many bytes more pass, to the server and to the worker; then none.
  void Admit(uint64_t to_server, uint64_t to_worker) {
    left_[kServer] = to_server;
    left_[kWorker] = to_worker;
  }
  // Bytes wait that are not let through.
  bool is_shut() const { return is_shut_; }

  // Closes everything, also the port. What waits is lost.
  void Die() { dead_ = true; }

 private:
  enum Side { kWorker = 0, kServer = 1 };
  struct Pair {
    int ends[2];
    std::string waiting[2];  // for ends[i]
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
    while (!dead_) {
      std::vector<pollfd> polled = {{listener_, POLLIN, 0}};
      for (const Pair& pair : pairs_) {
        for (const int end : pair.ends) polled.push_back({end, POLLIN, 0});
      }
      poll(polled.data(), polled.size(), 1);
      for (Pair& pair : pairs_) {
        for (const Side to : {kWorker, kServer}) Move(&pair, to);
      }
      pairs_.remove_if([](const Pair& pair) {
        if (pair.over) Close(pair);
        return pair.over;
      });
      if (polled[0].revents != 0) Accept();
    }
    close(listener_);
    for (const Pair& pair : pairs_) Close(pair);
    pairs_.clear();
  }

  void Accept() {
    Pair pair;
    pair.ends[kWorker] = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (pair.ends[kWorker] < 0) return;
    pair.ends[kServer] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = Address(target_.port);
    pair.over = connect(pair.ends[kServer], reinterpret_cast<const sockaddr*>(&address),
                        sizeof(address)) != 0;
    for (const int end : pair.ends) {
      const int one = 1;
      setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
      fcntl(end, F_SETFL, fcntl(end, F_GETFL) | O_NONBLOCK);
    }
    pairs_.push_back(std::move(pair));
  }

  void Move(Pair* pair, Side to) {
    std::string& waiting = pair->waiting[to];
    if (waiting.empty()) {
      char buffer[16384];
      const ssize_t received = recv(pair->ends[1 - to], buffer, sizeof(buffer), 0);
      if (received == 0 || (received < 0 && errno != EAGAIN)) pair->over = true;
      if (received > 0) waiting.assign(buffer, received);
    }
    if (waiting.empty()) return;
    const uint64_t left = left_[to];
    const size_t most = std::min<uint64_t>(waiting.size(), left);
    if (most == 0) {
      is_shut_ = true;
      return;
    }
    const ssize_t sent = send(pair->ends[to], waiting.data(), most, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) pair->over = true;
    if (sent <= 0) return;
    waiting.erase(0, sent);
    // Unless the test has just set another number.
    uint64_t before = left;
    if (left != kAll) left_[to].compare_exchange_strong(before, left - sent);
  }

  static void Close(const Pair& pair) {
    for (const int end : pair.ends) close(end);
  }

  const Endpoint target_;
  Endpoint endpoint_;
  int listener_ = -1;
  std::atomic<uint64_t> left_[2] = {kAll, kAll};
  std::atomic<bool> is_shut_{false};
  std::atomic<bool> dead_{false};
  std::list<Pair> pairs_;  // the thread's
  std::thread thread_;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_ENGINE_GATED_PROXY_H_

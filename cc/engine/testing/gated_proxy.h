// For tests: a TCP proxy between one worker and one server that stops passing bytes on after so
// many of them, in either direction, and can end as a killed process does.
#pragma once

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

#include "cc/engine/testing/proxy_listener.h"

namespace byteps {

class GatedProxy {
 public:
  static constexpr uint64_t kAll = std::numeric_limits<uint64_t>::max();

  explicit GatedProxy(const Endpoint& target) : listener_(target) {
    thread_ = std::thread([this] { Run(); });
  }
  ~GatedProxy() {
    Die();
    thread_.join();
  }

  const Endpoint& endpoint() const { return listener_.endpoint(); }

  // From now on so many bytes more pass, to the server and to the worker; then none.
  void Admit(uint64_t to_server, uint64_t to_worker) {
    left_[kServer] = to_server;
    left_[kWorker] = to_worker;
  }
  // Bytes wait that are not let through.
  bool is_shut() const { return is_shut_; }
  // How many it has taken.
  int connections() const { return connections_; }

  // Closes everything, also the port. What waits is lost.
  void Die() { dead_ = true; }

 private:
  enum Side { kWorker = 0, kServer = 1 };
  struct Pair {
    int ends[2];
    std::string waiting[2];  // for ends[i]
    bool over = false;
  };

  void Run() {
    while (!dead_) {
      std::vector<pollfd> polled = {{listener_.fd(), POLLIN, 0}};
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
    listener_.Close();
    for (const Pair& pair : pairs_) Close(pair);
    pairs_.clear();
  }

  void Accept() {
    Pair pair;
    if (!listener_.Accept(&pair.ends[kWorker], &pair.ends[kServer])) return;
    pairs_.push_back(pair);
    ++connections_;
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

  ProxyListener listener_;
  std::atomic<uint64_t> left_[2] = {kAll, kAll};
  std::atomic<bool> is_shut_{false};
  std::atomic<int> connections_{0};
  std::atomic<bool> dead_{false};
  std::list<Pair> pairs_;  // the thread's
  std::thread thread_;
};

}  // namespace byteps

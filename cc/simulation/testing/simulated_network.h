// SimulatedNetwork: Vans whose frames travel through memory, in simulated time. Each direction of a
// connection has a rate and a delay; connections break, links freeze, processes die. Processes may
// have hosts of their own, whose NIC and CPU all their connections share.
//
// It keeps the contract of van/van.h and no more: frames of higher priority overtake waiting ones,
// long ones go in pieces between which others come, what has arrived before a break may be half a
// frame. A Tamper breaks the contract, or changes what peers say: the planted bugs.
//
// This is what all Vans of a simulation share; simulated_van.h has the Vans, and is to be included.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "cc/simulation/testing/event_schedule.h"
#include "cc/van/van.h"

namespace byteps {

// Bugs that a test plants.
struct Tamper {
  // Of each frame as it is sent; returns whether it is to be lost.
  std::function<bool(FrameHeader* header)> on_send;
  // Of each frame as it is sent, between two processes, with its payload.
  std::function<void(const std::string& from, const std::string& to, OutgoingFrame* frame)>
      on_frame;
  // Of each handshake, before the end that listens looks at it.
  std::function<void(Hello* hello)> on_hello;
  // A second frame, without payload, that follows one.
  std::function<std::optional<FrameHeader>(const FrameHeader& header)> after_send;
  double overtakes = 0;         // how often a frame overtakes its equals
  bool repeats_epochs = false;  // all epochs of an elastic job have the same number
  bool closes_at_once = false;  // Close calls OnClosed itself, with whatever its caller has locked
};

// What each process's host can do.
struct HostSpeeds {
  double nic_nanos_per_byte = 0;  // of payload, in each direction
  double cpu_nanos_per_byte = 0;  // to take in what has arrived, and to add it up
  int64_t frame_nanos = 0;        // more for each piece of a frame
  int64_t delay_ns = 0;           // of the network between two hosts
  uint64_t piece_bytes = 0;       // connections take turns after so many
  // So many of each connection wait for the NIC in the kernel, where nothing overtakes them.
  uint64_t kernel_bytes = 0;
};

class SimulatedVan;
class SimulatedConnection;

// All that the Vans of one simulation share. Outlives them.
class SimulatedNetwork {
 public:
  explicit SimulatedNetwork(EventSchedule* schedule) : schedule_(*schedule) {}

  EventSchedule& schedule() { return schedule_; }
  Tamper& tamper() { return tamper_; }
  // Before there are connections. Without it, each connection has a rate of its own.
  void GiveHosts(const HostSpeeds& speeds) { speeds_ = speeds; }
  // Like that of a process whose host still answers for it: nobody hears of it any more.
  void Kill(const std::string& process) {
    schedule_.Note("kill " + process);
    dead_.insert(process);
    BreakAll(process, "");
  }
  // With its host: nothing comes from it any more, and no connection breaks.
  void KillHost(const std::string& process) {
    schedule_.Note("kill the host of " + process);
    dead_.insert(process);
    lost_hosts_.insert(process);
  }
  bool IsDead(const std::string& process) const { return dead_.count(process) > 0; }

  // Connections between two processes break, or those of one with all others ("").
  inline void BreakAll(const std::string& one, const std::string& other);

  // Nothing arrives between the two for so long, and no connection is made.
  void Freeze(const std::string& one, const std::string& other, int64_t nanos) {
    schedule_.Note("freeze " + one + " - " + other + " for " + std::to_string(nanos / 1000000) +
                   " ms");
    int64_t& until = frozen_[Between(one, other)];
    until = std::max(until, schedule_.NowNanos() + nanos);
  }
  // The same between one and all others.
  void CutOff(const std::string& process, int64_t nanos) { Freeze(process, "", nanos); }
  // Whether nothing can come from it now.
  bool IsSilent(const std::string& process) {
    return FrozenUntil(process, "") > schedule_.NowNanos() ||
           schedule_.IsStopped(schedule_.NumberOf(process));
  }
  // From now on who listens gets a port that nobody has any more, as with BYTEPS_PORTS.
  void ReusePorts() { reuses_ports_ = true; }
  bool IsConnected(const std::string& one, const std::string& other) const {
    return std::any_of(connections_.begin(), connections_.end(),
                       [&](const auto& each) { return AreEnds(each, one, other); });
  }
  // The bytes of pushes of a process that are sure not to have arrived.
  inline uint64_t PushedBytes(const std::string& process) const;

  // Until when something of a process may be kept back.
  int64_t FrozenUntil(const std::string& process) const {
    int64_t last = 0;
    for (const auto& [link, until] : frozen_) {
      if (link.first == process || link.second == process) last = std::max(last, until);
    }
    return last;
  }
  int64_t FrozenUntil(const std::string& one, const std::string& other) const {
    int64_t last = 0;
    for (const Link& link : {Between(one, other), Link("", one), Link("", other)}) {
      const auto found = frozen_.find(link);
      if (found != frozen_.end()) last = std::max(last, found->second);
    }
    return last;
  }

 private:
  friend class SimulatedVan;
  friend class SimulatedConnection;
  using Link = std::pair<std::string, std::string>;
  struct Listener {
    SimulatedVan* van = nullptr;
    ConnectionAcceptor* acceptor = nullptr;
  };

  static Link Between(const std::string& one, const std::string& other) {
    return one < other ? Link(one, other) : Link(other, one);
  }

  // Until when a host is at work with what it has begun.
  struct Host {
    int64_t sends_until_ns = 0, receives_until_ns = 0, computes_until_ns = 0;
  };
  // When a piece has left its sender, and when its receiver has taken it in.
  struct Passage {
    int64_t left_ns = 0, taken_ns = 0;
  };

  // What arrives is received while it is sent, if nothing else is.
  Passage Pass(const std::string& from, const std::string& to, uint64_t bytes) {
    Host &sender = hosts_[from], &receiver = hosts_[to];
    const auto nanos = [&](double per_byte) {
      return static_cast<int64_t>(static_cast<double>(bytes) * per_byte) + speeds_->frame_nanos;
    };
    const int64_t wire_ns = nanos(speeds_->nic_nanos_per_byte);
    const int64_t begin_ns = std::max(schedule_.NowNanos(), sender.sends_until_ns);
    sender.sends_until_ns = begin_ns + wire_ns;
    receiver.receives_until_ns =
        std::max(begin_ns + speeds_->delay_ns, receiver.receives_until_ns) + wire_ns;
    receiver.computes_until_ns = std::max(receiver.receives_until_ns, receiver.computes_until_ns) +
                                 nanos(speeds_->cpu_nanos_per_byte);
    return {sender.sends_until_ns, receiver.computes_until_ns};
  }

  inline uint16_t NewPort();
  // Of an open connection that the first has made.
  static inline bool AreEnds(const std::weak_ptr<SimulatedConnection>& connection,
                             const std::string& one, const std::string& other);

  EventSchedule& schedule_;
  Tamper tamper_;
  bool reuses_ports_ = false;
  std::optional<HostSpeeds> speeds_;
  std::map<std::string, Host> hosts_;  // by process
  std::map<uint16_t, Listener> listeners_;
  uint16_t last_port_ = 0;
  std::set<std::string> dead_;
  std::set<std::string> lost_hosts_;  // of some of these: nobody answers for them
  std::map<Link, int64_t> frozen_;
  std::vector<std::weak_ptr<SimulatedConnection>> connections_;
};

}  // namespace byteps

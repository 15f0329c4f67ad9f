// SimulatedVan: a process's Van in a SimulatedNetwork, and what that does with Vans and
// connections.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/simulation/testing/event_schedule.h"
#include "cc/simulation/testing/simulated_connection.h"
#include "cc/simulation/testing/simulated_network.h"
#include "cc/van/van.h"

namespace byteps {

class SimulatedVan final : public Van {
 public:
  SimulatedVan(SimulatedNetwork* network, std::string process)
      : network_(*network), schedule_(network->schedule_), process_(std::move(process)) {}
  ~SimulatedVan() override { Stop(); }

  Status Listen(const std::string&, uint16_t, ConnectionAcceptor* acceptor,
                Endpoint* bound) override {
    *bound = {"10.0.0.1", network_.NewPort()};
    network_.listeners_[bound->port] = {this, acceptor};
    ports_.push_back(bound->port);
    return OkStatus();
  }

  Status Connect(const Endpoint& endpoint, const Hello& hello, const Hello& peer,
                 ConnectionHandler* handler, const ConnectTimeout& timeout,
                 std::shared_ptr<Connection>* connection) override {
    const int64_t deadline_ns = schedule_.NowNanos() + static_cast<int64_t>(timeout.seconds * 1e9);
    while (true) {
      schedule_.Sleep(50000 + static_cast<int64_t>(schedule_.Draw(500000)));
      if (timeout.in_vain) BYTEPS_RETURN_IF_ERROR(timeout.in_vain());
      if (is_stopped_) return Cancelled("the Van has been stopped");
      Status status = Unavailable("nothing comes back from " + endpoint.ToString());
      const auto found = network_.listeners_.find(endpoint.port);
      const bool is_there =
          found != network_.listeners_.end() && !network_.IsDead(found->second.van->process_);
      if (network_.IsDead(process_)) {
        status = Unavailable("this process is dead");
      } else if (!is_there && found != network_.listeners_.end() &&
                 network_.lost_hosts_.count(found->second.van->process_) > 0) {
        status = DeadlineExceeded(status.message());
      } else if (!is_there) {
        status = hello.again ? FailedPrecondition("nobody listens at " + endpoint.ToString())
                             : Unavailable("nobody listens at " + endpoint.ToString());
      } else if (network_.FrozenUntil(process_, found->second.van->process_) <=
                     schedule_.NowNanos() &&
                 !network_.IsSilent(found->second.van->process_)) {
        status = Handshake(found->second, hello, peer, handler, connection);
      }
      const bool may_come = status.code() == StatusCode::kUnavailable ||
                            status.code() == StatusCode::kDeadlineExceeded;
      if (!may_come || schedule_.NowNanos() >= deadline_ns) return status;
      schedule_.Sleep(10000000);
    }
  }

  Status Expect(size_t) override { return OkStatus(); }

  void Stop() override {
    if (is_stopped_) return;
    is_stopped_ = true;
    for (const uint16_t port : ports_) {  // a dead process's may have another owner
      const auto found = network_.listeners_.find(port);
      if (found != network_.listeners_.end() && found->second.van == this)
        network_.listeners_.erase(found);
    }
    for (const std::shared_ptr<SimulatedConnection>& connection : connections_) {
      if (connection->handler_ == nullptr) continue;
      ConnectionHandler* const handler = std::exchange(connection->handler_, nullptr);
      if (!connection->is_closed_) {
        connection->End(Cancelled("stopped"));
        connection->EndOther("the peer has ended");
      }
      if (connection->is_open_) handler->OnClosed(*connection, Cancelled("stopped"));
      connection->set_context(nullptr);
    }
  }

  VanCounters counters() const override { return {}; }
  bool IsRefusedAt(const Endpoint& endpoint, double) const override {
    schedule_.Sleep(static_cast<int64_t>(schedule_.Draw(1000000)));
    const auto found = network_.listeners_.find(endpoint.port);
    if (found == network_.listeners_.end()) return true;
    const std::string& owner = found->second.van->process_;
    return network_.IsDead(owner) && network_.lost_hosts_.count(owner) == 0;
  }

 private:
  friend class SimulatedNetwork;

  Status Handshake(const SimulatedNetwork::Listener& listener, const Hello& hello,
                   const Hello& peer, ConnectionHandler* handler,
                   std::shared_ptr<Connection>* connection) {
    Hello said = hello;
    said.to_role = peer.role;
    said.to_rank = peer.rank;
    if (network_.tamper_.on_hello) network_.tamper_.on_hello(&said);
    ConnectionHandler* other_handler = nullptr;
    const Status status = listener.acceptor->OnHello(said, "10.0.0.1", &other_handler);
    if (!status.ok()) {
      schedule_.Note(process_ + " is refused by " + listener.van->process_ + ": " +
                     status.message());
      return status;
    }
    Hello addressed = peer;
    addressed.again = hello.again;
    const auto here = std::make_shared<SimulatedConnection>(
        &network_, process_, listener.van->process_, addressed, handler);
    const auto there = std::make_shared<SimulatedConnection>(&network_, listener.van->process_,
                                                             process_, hello, other_handler);
    here->other_ = there;
    there->other_ = here;
    here->delay_ns_ = there->delay_ns_ = 10000 + static_cast<int64_t>(schedule_.Draw(300000));
    here->nanos_per_kib_ = there->nanos_per_kib_ = int64_t{1000} << schedule_.Draw(6);
    connections_.push_back(here);
    listener.van->connections_.push_back(there);
    network_.connections_.push_back(here);
    schedule_.Note(process_ + " connects to " + listener.van->process_ +
                   (hello.again ? " again" : ""));
    // Each end learns of the other at a time of its own.
    schedule_.After(static_cast<int64_t>(schedule_.Draw(200000)), there->number_, [there] {
      if (there->is_closed_ || !there->Sees() || there->handler_ == nullptr) return;
      there->is_open_ = true;
      there->last_heard_ns_ = there->schedule_.NowNanos();
      there->handler_->OnOpen(there);
    });
    schedule_.Sleep(static_cast<int64_t>(schedule_.Draw(200000)));
    if (here->is_closed_ || here->handler_ == nullptr || network_.IsDead(process_))
      return Unavailable("it broke while it was made");
    here->is_open_ = true;
    here->last_heard_ns_ = schedule_.NowNanos();
    handler->OnOpen(here);
    *connection = here;
    return OkStatus();
  }

  SimulatedNetwork& network_;
  EventSchedule& schedule_;
  const std::string process_;
  std::vector<uint16_t> ports_;
  std::vector<std::shared_ptr<SimulatedConnection>> connections_;  // all that were ever made
  bool is_stopped_ = false;
};

inline void SimulatedNetwork::BreakAll(const std::string& one, const std::string& other) {
  for (const std::weak_ptr<SimulatedConnection>& weak : connections_) {
    const std::shared_ptr<SimulatedConnection> connection = weak.lock();
    if (connection == nullptr) continue;
    const std::string &a = connection->process_, &b = connection->peer_process_;
    if ((a == one && (other.empty() || b == other)) || (b == one && (other.empty() || a == other)))
      connection->Break("connection reset");
  }
}

inline uint16_t SimulatedNetwork::NewPort() {
  if (!reuses_ports_) return ++last_port_;
  uint16_t port = 1;
  for (auto each = listeners_.begin(); each != listeners_.end() && each->first == port; ++each) {
    const std::string& owner = each->second.van->process_;
    if (IsDead(owner) && lost_hosts_.count(owner) == 0) break;
    ++port;
  }
  last_port_ = std::max(last_port_, port);
  return port;
}

inline bool SimulatedNetwork::AreEnds(const std::weak_ptr<SimulatedConnection>& connection,
                                      const std::string& one, const std::string& other) {
  const std::shared_ptr<SimulatedConnection> end = connection.lock();
  return end != nullptr && !end->is_closed_ && end->is_open_ && end->process_ == one &&
         end->peer_process_ == other;
}

inline uint64_t SimulatedNetwork::PushedBytes(const std::string& process) const {
  uint64_t bytes = 0;
  for (const std::weak_ptr<SimulatedConnection>& weak : connections_) {
    const std::shared_ptr<SimulatedConnection> connection = weak.lock();
    if (connection != nullptr && connection->process() == process && !connection->is_closed())
      bytes += connection->pushed_bytes();
  }
  return bytes;
}

}  // namespace byteps

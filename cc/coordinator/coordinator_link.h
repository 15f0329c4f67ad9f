// CoordinatorLink: a worker's or server's way to the coordinator, with the heartbeats in both
// directions. Survives connections that break.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/periodic_thread.h"
#include "cc/coordinator/control_session.h"
#include "cc/van/reconnector.h"
#include "cc/van/van.h"
#include "cc/wire/control.h"

namespace byteps {

class CoordinatorLink : public ControlHandler, private ConnectionAcceptor {
 public:
  // `on_message` gets everything but heartbeats; `on_lost` at most once, when the coordinator is
  // gone or silent. Both on engine threads, never after Stop.
  CoordinatorLink(std::function<void(ControlMessage)> on_message,
                  std::function<void(const Status&)> on_lost);
  ~CoordinatorLink() override;

  // Connects through `van`, which must be stopped before this object ends. Blocks up to the connect
  // timeout.
  Status Start(Van* van, const JobDescription& job, Role role, int32_t rank);

  void Send(const ControlMessage& message) { session_->Send(message); }

  // Whether this process has a connection to the coordinator, and has heard of it lately.
  bool hears() const;
  // Whether the coordinator has heard of the server lately, and this process of the coordinator.
  bool KnowsToLive(int32_t server) const;
  // Start has succeeded, and the coordinator has not been lost since.
  bool connected() const { return started_ && !quiet_; }

  // No more heartbeats, and a lost connection is no news any more.
  void Stop();

  void OnOpen(const std::shared_ptr<Connection>& connection) override;
  void OnClosed(Connection& connection, const Status& reason) override;

 protected:
  std::shared_ptr<ControlSession> SessionOf(Connection&) override { return session_; }
  Status OnMessage(Connection& connection, ControlMessage message) override;

 private:
  // Nobody is let in: that the port is there tells that the process lives.
  Status OnHello(const Hello& hello, const std::string& peer_address,
                 ConnectionHandler** handler) override;
  void TellWhereItListens(Van* van);
  bool HasHeardLately() const;
  void Lost(const Status& reason);

  const std::function<void(ControlMessage)> on_message_;
  const std::function<void(const Status&)> on_lost_;
  const std::shared_ptr<ControlSession> session_ = std::make_shared<ControlSession>();
  std::unique_ptr<Reconnector> reconnector_;  // set by Start, then unchanged
  std::atomic<bool> started_{false};
  std::atomic<int64_t> last_seen_ns_{0};
  std::atomic<double> heartbeat_interval_{0};
  mutable Mutex silent_mutex_;
  std::vector<int32_t> silent_servers_
      BYTEPS_GUARDED_BY(silent_mutex_);  // as the coordinator last said
  std::atomic<bool> quiet_{false};       // lost has been reported, or does not matter
  PeriodicThread heartbeat_;
};

}  // namespace byteps

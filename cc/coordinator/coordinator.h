// Coordinator: the one author of a job's tensor table, and the one who knows who is still there.
// Lives in the scheduler's process; speaks control frames with every worker and server.
//
// It is C++ so that no heartbeat and no declaration waits for a Python lock (protocol rule 20).
//
// What it knows and decides is its CoordinatorState (coordinator/state/coordinator_state.h). This
// class has the one mutex, the connections and the threads, tells the state what happens, and
// performs what that decides (Coordinator::Transaction).
//
// What one process says costs the same with any number of others, but for what all must hear
// (protocol rule 30); that is encoded once.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/job.h"
#include "cc/base/mutex.h"
#include "cc/base/periodic_thread.h"
#include "cc/coordinator/absent_peers.h"
#include "cc/coordinator/control_session.h"
#include "cc/coordinator/state/coordinator_state.h"
#include "cc/van/van.h"

namespace byteps {

// Thread-safe.
class Coordinator : private ControlHandler, public ConnectionAcceptor {
 public:
  // `van`: null for one of TCP.
  explicit Coordinator(const EngineOptions& options, std::unique_ptr<Van> van = nullptr);
  ~Coordinator() override;

  // Takes a port, so that the address book can name it. Peers that come before Start are told to
  // try again.
  Status Listen(const std::string& address, uint16_t port);
  const Endpoint& endpoint() const { return endpoint_; }

  // Serves `job` from now on; once.
  Status Start(const JobDescription& job);

  // The servers that are lost while training goes on: what each of them was can be started again.
  // None once a worker has left, who may have a result that others lack.
  std::vector<int32_t> lost_servers() const;

  // Server `rank`, one of these, has been started again, listens at `endpoint`, and is about to
  // join. Once it has, it gets its share of the parts. It must come within the heartbeat timeout,
  // else it is lost again. FAILED_PRECONDITION if it is not lost.
  Status Readmit(int32_t rank, const Endpoint& endpoint, const std::string& host);

  // Waits up to `timeout` seconds; true once the job is over: every worker has left, or somebody
  // was lost and the rest has had time to say goodbye. It returns false before its time once, when
  // somebody has been lost.
  bool Wait(double timeout);

  // Who was lost first, or "".
  std::string failure() const;

  // Closes all connections. Idempotent.
  void Stop();

  Status OnHello(const Hello& hello, const std::string& peer_address,
                 ConnectionHandler** handler) override;

 private:
  class Transaction;

  void OnOpen(const std::shared_ptr<Connection>& connection) override;
  std::shared_ptr<ControlSession> SessionOf(Connection& connection) override;
  Status OnMessage(Connection& connection, ControlMessage message) override;
  void OnClosed(Connection& connection, const Status& reason) override;

  JobPeer* PeerOf(const Connection& connection) BYTEPS_REQUIRES(mutex_);
  void Beat(int64_t late_ns);
  void RunDeferred();
  void OnJoinTimeout(size_t peer, const std::string& why);
  // coordinator_transaction.cc: what the state has decided is done.
  void Perform(CoordinatorEffects* effects) BYTEPS_REQUIRES(mutex_);

  const EngineOptions options_;
  Endpoint endpoint_;
  std::unique_ptr<Van> van_;
  PeriodicThread heartbeat_;
  PeriodicThread deferred_;  // what is worth collecting for a moment; from the first time on
  AbsentPeers absent_;

  mutable Mutex mutex_;
  CondVar changed_;
  // From Start on; then unchanged, but for what it points to.
  std::unique_ptr<CoordinatorState> state_ BYTEPS_GUARDED_BY(mutex_);
  std::vector<std::shared_ptr<ControlSession>> sessions_
      BYTEPS_GUARDED_BY(mutex_);                         // as PeerTable numbers them
  bool has_deferred_ BYTEPS_GUARDED_BY(mutex_) = false;  // deferred_ has been started
  bool stopping_ BYTEPS_GUARDED_BY(mutex_) = false;
};

}  // namespace byteps

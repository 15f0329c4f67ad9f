// Server: a summation service on the network. `python -m tf_byteps.server` is one of these in a
// process of its own; a colocated server is one inside a worker's process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cc/base/job.h"
#include "cc/base/mutex.h"
#include "cc/base/periodic_thread.h"
#include "cc/coordinator/coordinator_link.h"
#include "cc/server/kept_tables.h"
#include "cc/server/summation_service.h"
#include "cc/van/van.h"

namespace byteps {

// Thread-safe.
class Server : private ConnectionAcceptor {
 public:
  // `van`: null for the one that the options name. `kept`: where an elastic job's server finds rows
  // of the epoch before, and leaves its own when it stops; null: it keeps none.
  explicit Server(const EngineOptions& options, std::unique_ptr<Van> van = nullptr,
                  std::shared_ptr<KeptTables> kept = nullptr);
  ~Server() override;

  // Takes a port, so that the address book can name it. Workers that come before Start are told to
  // try again.
  Status Listen(const std::string& address, uint16_t port);
  const Endpoint& endpoint() const { return endpoint_; }

  // Joins `job` as server `rank` and serves its workers; once.
  Status Start(const JobDescription& job, int32_t rank);

  // Waits up to `timeout` seconds; true once the job is over or the scheduler is lost.
  bool Wait(double timeout);

  // Who was lost first, or "".
  std::string failure() const;

  // All zero before Start.
  SummationCounters counters() const;
  std::vector<TensorCounters> tensor_counters() const;
  std::vector<WorkerLag> arrival_lags() const;
  // Null before Start. Lives as long as this object, as what it has recorded does.
  ServerTimeline* timeline();
  VanCounters van_counters() const { return van_->counters(); }

  // Closes all connections. Idempotent.
  void Stop();

 private:
  Status OnHello(const Hello& hello, const std::string& peer_address,
                 ConnectionHandler** handler) override;
  void OnMessage(const ControlMessage& message);
  void OnCoordinatorLost(const Status& reason);
  void Fail(const std::string& what);
  void EndJob();

  const EngineOptions options_;
  Endpoint endpoint_;
  std::unique_ptr<Van> van_;
  const std::shared_ptr<KeptTables> kept_;
  PeriodicThread reports_;

  mutable Mutex mutex_;
  // These three are set by Start, with the mutex locked, and then unchanged: what comes by way of
  // link_ reads them without it.
  int32_t rank_ = -1;
  std::shared_ptr<SummationService> service_;
  std::unique_ptr<CoordinatorLink> link_;
  CondVar changed_;
  JobDescription job_ BYTEPS_GUARDED_BY(mutex_);
  std::string failure_ BYTEPS_GUARDED_BY(mutex_);
  bool over_ BYTEPS_GUARDED_BY(mutex_) = false;
  bool coordinator_lost_ BYTEPS_GUARDED_BY(mutex_) = false;
  bool stopped_ BYTEPS_GUARDED_BY(mutex_) = false;
};

}  // namespace byteps

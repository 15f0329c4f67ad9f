// WorkerConnections: the connections that the workers of a job have to one server, also those that
// are broken.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/server/worker_connection.h"
#include "cc/van/van.h"

namespace byteps {

// Thread-safe.
class WorkerConnections {
 public:
  explicit WorkerConnections(int32_t num_workers) : connections_(num_workers) {}

  // From OnOpen: what is kept for this connection, and for those that come in its place.
  std::shared_ptr<WorkerConnection> Open(const std::shared_ptr<Connection>& connection);
  // Whether there has been one of this worker.
  bool Knows(int32_t rank) const;
  bool HasConnectionInUse(int32_t rank) const;

  // One of each of `ranks`, if nothing is being sent to it on any.
  std::vector<std::shared_ptr<WorkerConnection>> Idle(const std::vector<int32_t>& ranks) const;
  // One of each of `ranks`, if there is any.
  std::vector<std::shared_ptr<WorkerConnection>> Of(const std::vector<int32_t>& ranks) const;
  // To every worker that is connected, on one connection.
  void SendToEach(const OutgoingFrame& frame) const;
  // See Connection::LimitUnsent; for those that are connected, and those that come.
  void LimitUnsent(uint64_t bytes);

 private:
  mutable Mutex mutex_;
  // By rank, then by path. Null: has not come yet.
  std::vector<std::vector<std::shared_ptr<WorkerConnection>>> connections_
      BYTEPS_GUARDED_BY(mutex_);
  uint64_t unsent_bytes_ BYTEPS_GUARDED_BY(mutex_) = 0;  // 0: no limit has been set
};

}  // namespace byteps

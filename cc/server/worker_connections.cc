#include "cc/server/worker_connections.h"

#include <algorithm>
#include <utility>

namespace byteps {

std::shared_ptr<WorkerConnection> WorkerConnections::Open(
    const std::shared_ptr<Connection>& connection) {
  MutexLock lock(mutex_);
  const Hello& peer = connection->peer();
  std::vector<std::shared_ptr<WorkerConnection>>& paths = connections_[peer.rank];
  if (paths.size() <= peer.path) paths.resize(peer.path + 1);
  std::shared_ptr<WorkerConnection>& worker = paths[peer.path];
  if (worker == nullptr) worker = std::make_shared<WorkerConnection>(*connection);
  if (unsent_bytes_ > 0) connection->LimitUnsent(unsent_bytes_);
  worker->Open(connection);
  return worker;
}

bool WorkerConnections::Knows(int32_t rank) const {
  MutexLock lock(mutex_);
  return !connections_[rank].empty();
}

bool WorkerConnections::HasConnectionInUse(int32_t rank) const {
  MutexLock lock(mutex_);
  const auto& paths = connections_[rank];
  return std::any_of(paths.begin(), paths.end(),
                     [](const auto& worker) { return worker != nullptr && worker->is_in_use(); });
}

std::vector<std::shared_ptr<WorkerConnection>> WorkerConnections::Of(
    const std::vector<int32_t>& ranks) const {
  std::vector<std::shared_ptr<WorkerConnection>> found;
  MutexLock lock(mutex_);
  for (const int32_t rank : ranks) {
    const auto& paths = connections_[rank];
    const auto in_use = std::find_if(paths.begin(), paths.end(), [](const auto& worker) {
      return worker != nullptr && worker->is_in_use();
    });
    if (in_use != paths.end()) found.push_back(*in_use);
  }
  return found;
}

std::vector<std::shared_ptr<WorkerConnection>> WorkerConnections::Idle(
    const std::vector<int32_t>& ranks) const {
  std::vector<std::shared_ptr<WorkerConnection>> idle;
  MutexLock lock(mutex_);
  for (const int32_t rank : ranks) {
    std::shared_ptr<WorkerConnection> found;
    bool is_idle = true;
    for (const std::shared_ptr<WorkerConnection>& worker : connections_[rank]) {
      if (worker == nullptr) continue;
      found = worker;
      is_idle = is_idle && worker->is_idle();
    }
    if (found != nullptr && is_idle) idle.push_back(std::move(found));
  }
  return idle;
}

void WorkerConnections::SendToEach(const OutgoingFrame& frame) const {
  std::vector<std::shared_ptr<WorkerConnection>> one_of_each;
  {
    MutexLock lock(mutex_);
    for (const auto& paths : connections_) {
      const auto found = std::find_if(paths.begin(), paths.end(), [](const auto& worker) {
        return worker != nullptr && worker->is_in_use();
      });
      if (found != paths.end()) one_of_each.push_back(*found);
    }
  }
  for (const std::shared_ptr<WorkerConnection>& worker : one_of_each) worker->Send(frame);
}

void WorkerConnections::LimitUnsent(uint64_t bytes) {
  MutexLock lock(mutex_);
  unsent_bytes_ = bytes;
  for (const auto& paths : connections_) {
    for (const std::shared_ptr<WorkerConnection>& worker : paths) {
      if (worker != nullptr) worker->LimitUnsent(bytes);
    }
  }
}

}  // namespace byteps

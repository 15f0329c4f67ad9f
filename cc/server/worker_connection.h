// What the service keeps for each connection of a worker.
#ifndef TF_BYTEPS_CC_SERVER_WORKER_CONNECTION_H_
#define TF_BYTEPS_CC_SERVER_WORKER_CONNECTION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "cc/van/van.h"

namespace byteps {

class WorkerConnection {
 public:
  explicit WorkerConnection(const std::shared_ptr<Connection>& connection)
      : connection_(connection), rank_(connection->peer().rank), name_(connection->peer_name()) {}

  int32_t rank() const { return rank_; }
  const std::string& name() const { return name_; }

  // Credit (protocol rule 9): bytes that have been taken in and not been acknowledged. Any thread.
  void AddCredit(uint64_t bytes) { credit_ += bytes; }
  uint64_t credit() const { return credit_; }
  uint64_t TakeCredit() { return credit_.exchange(0); }

  // Any thread. Dropped when the connection is gone.
  void Send(OutgoingFrame frame) {
    if (const std::shared_ptr<Connection> connection = connection_.lock())
      connection->Send(std::move(frame));
  }

  // See Connection::is_idle.
  bool is_idle() const {
    const std::shared_ptr<Connection> connection = connection_.lock();
    return connection != nullptr && connection->is_idle();
  }

  // See Connection::LimitUnsent.
  void LimitUnsent(uint64_t bytes) {
    if (const std::shared_ptr<Connection> connection = connection_.lock())
      connection->LimitUnsent(bytes);
  }

  // Takes the credit along if the reply leaves at once. A reply that waits for its turn would have
  // the worker wait, too.
  void SendReply(OutgoingFrame reply) {
    const std::shared_ptr<Connection> connection = connection_.lock();
    if (connection == nullptr) return;
    if (connection->is_idle()) reply.header.credit_bytes = TakeCredit();
    connection->Send(std::move(reply));
  }

 private:
  const std::weak_ptr<Connection> connection_;  // it owns this object
  const int32_t rank_;
  const std::string name_;
  std::atomic<uint64_t> credit_{0};
};

// A reply, to be sent once no mutex is held.
struct Reply {
  std::shared_ptr<WorkerConnection> to;
  OutgoingFrame frame;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_SERVER_WORKER_CONNECTION_H_

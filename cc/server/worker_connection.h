// What the service keeps for each of the connections that a worker has, also while it is broken.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "cc/base/mutex.h"
#include "cc/van/van.h"
#include "cc/wire/control.h"

namespace byteps {

// Thread-safe.
//
// A connection that comes again after a break is *opened* first and carries nothing. It is *in use*
// once the worker has asked what has become of its pushes (ResumeQuery) and the one before has
// ended, so that nothing arrives over that any more.
class WorkerConnection : public std::enable_shared_from_this<WorkerConnection> {
 public:
  explicit WorkerConnection(const Connection& connection)
      : rank_(connection.peer().rank), name_(connection.peer_name()) {}

  int32_t rank() const { return rank_; }
  const std::string& name() const { return name_; }

  // Which of the connections one after another is in use. Replies that were meant for an earlier
  // one are not sent over a later one: they are asked for again.
  uint64_t generation() const { return generation_; }

  // From OnOpen.
  void Open(const std::shared_ptr<Connection>& connection) {
    MutexLock lock(mutex_);
    const std::shared_ptr<Connection> before = in_use_.lock();
    if (before != nullptr) before->Close(Unavailable("another connection has taken its place"));
    opened_ = connection;
    query_.reset();
    if (!connection->peer().again) Use();
  }

  // The worker asks, over a connection that has been opened; the answer is due now if this returns
  // the question, else when the connection before has ended. INVALID_ARGUMENT if there is nothing
  // to ask.
  Status Ask(const Connection& connection, ResumeQuery query, std::optional<ResumeQuery>* due) {
    MutexLock lock(mutex_);
    const bool is_opened = opened_.lock().get() == &connection;
    if (in_use_raw_ == &connection || (is_opened && query_.has_value()))
      return InvalidArgument(connection.peer_name() + " asks what it knows");
    if (!is_opened) return OkStatus();  // it is late: another connection has taken its place
    if (is_in_use_) {
      query_ = std::move(query);
      return OkStatus();
    }
    Use();
    *due = std::move(query);
    return OkStatus();
  }

  // From OnClosed. Returns the question that is to be answered now, if there is one.
  std::optional<ResumeQuery> Close(const Connection& connection) {
    MutexLock lock(mutex_);
    if (in_use_raw_ != &connection) return std::nullopt;
    is_in_use_ = false;
    in_use_raw_ = nullptr;
    in_use_.reset();
    if (!query_.has_value() || opened_.expired()) return std::nullopt;
    Use();
    return std::exchange(query_, std::nullopt);
  }

  // Ends the one in use.
  void Disconnect(const Status& reason) {
    if (const std::shared_ptr<Connection> connection = Current(generation_))
      connection->Close(reason);
  }

  bool is_in_use() const {
    MutexLock lock(mutex_);
    return is_in_use_;
  }
  bool is_in_use(const Connection& connection) const {
    MutexLock lock(mutex_);
    return in_use_raw_ == &connection;
  }

  // Credit (protocol rule 9): bytes that have been taken in and not been acknowledged.
  void AddCredit(uint64_t bytes) { credit_ += bytes; }
  uint64_t credit() const { return credit_; }
  uint64_t TakeCredit() { return credit_.exchange(0); }

  // Dropped when no connection is in use.
  void Send(OutgoingFrame frame) {
    if (const std::shared_ptr<Connection> connection = Current(generation_))
      connection->Send(std::move(frame));
  }

  // See Connection::is_idle.
  bool is_idle() const {
    const std::shared_ptr<Connection> connection = Current(generation_);
    return connection != nullptr && connection->is_idle();
  }

  // See Connection::LimitUnsent.
  void LimitUnsent(uint64_t bytes) {
    if (const std::shared_ptr<Connection> connection = Current(generation_))
      connection->LimitUnsent(bytes);
  }

  // Takes the credit along if the reply leaves at once. A reply that waits for its turn would have
  // the worker wait, too.
  void SendReply(OutgoingFrame reply, uint64_t generation) {
    const std::shared_ptr<Connection> connection = Current(generation);
    if (connection == nullptr) return;
    if (connection->is_idle()) reply.header.credit_bytes = TakeCredit();
    connection->Send(std::move(reply));
  }

 private:
  void Use() BYTEPS_REQUIRES(mutex_) {
    in_use_ = opened_;
    in_use_raw_ = opened_.lock().get();
    opened_.reset();
    is_in_use_ = true;
    ++generation_;
    credit_ = 0;  // the worker has taken back what was in flight
  }

  std::shared_ptr<Connection> Current(uint64_t generation) const {
    MutexLock lock(mutex_);
    return generation == generation_ ? in_use_.lock() : nullptr;
  }

  const int32_t rank_;
  const std::string name_;
  std::atomic<uint64_t> generation_{0};
  std::atomic<uint64_t> credit_{0};
  mutable Mutex mutex_;
  std::weak_ptr<Connection> in_use_
      BYTEPS_GUARDED_BY(mutex_);  // they own contexts that refer to this object
  std::weak_ptr<Connection> opened_ BYTEPS_GUARDED_BY(mutex_);
  const Connection* in_use_raw_ BYTEPS_GUARDED_BY(mutex_) =
      nullptr;  // also when nobody else holds it: for comparing
  bool is_in_use_ BYTEPS_GUARDED_BY(mutex_) = false;
  std::optional<ResumeQuery> query_
      BYTEPS_GUARDED_BY(mutex_);  // waits for the end of the connection before
};

}  // namespace byteps

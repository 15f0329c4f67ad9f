// What a Worker has to do once its mutex is free. For the files that implement Worker.
#ifndef TF_BYTEPS_CC_WORKER_WORKER_ACTIONS_H_
#define TF_BYTEPS_CC_WORKER_WORKER_ACTIONS_H_

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "cc/worker/worker.h"

namespace byteps {

// Frames and callbacks run without the mutex: Send may write to a socket and `done` is the caller's
// code.
struct Worker::Actions {
  struct Outgoing {
    Outgoing(std::shared_ptr<Connection> over, OutgoingFrame sent,
             std::shared_ptr<Exchange> encoded_by = nullptr)
        : connection(std::move(over)), frame(std::move(sent)), encoder(std::move(encoded_by)) {}
    std::shared_ptr<Connection> connection;
    OutgoingFrame frame;
    std::shared_ptr<Exchange> encoder;  // of a push that is to be compressed; else null
  };

  std::vector<Outgoing> frames;
  std::vector<std::shared_ptr<Exchange>> placed;  // by parts
  std::vector<std::function<void()>> parts_done;
  std::vector<std::function<void(bool)>> parts_dropped;  // never to be called
  std::vector<std::pair<std::shared_ptr<Exchange>, Status>> finished;
  std::vector<ControlMessage> messages;
  std::vector<std::shared_ptr<const void>> dropped;  // callers' memory
  CoordinatorLink* const coordinator;
  Timeline* const timeline;

  explicit Actions(const Worker* worker)
      : coordinator(worker->coordinator_.get()), timeline(worker->timeline_) {}
  // Without the mutex.
  void Perform() {
    for (const ControlMessage& message : messages) coordinator->Send(message);
    for (Outgoing& out : frames) {
      // Compressed parts are made when credit lets them leave, and need no more memory than that.
      // The thread that found the credit does it, one of the engine's or the caller's: other parts
      // leave later by that, and what it would have received.
      if (out.encoder != nullptr) out.encoder->EncodePush(&out.frame);
      out.connection->Send(std::move(out.frame));
    }
    for (const std::shared_ptr<Exchange>& exchange : placed) {
      const auto tell = std::move(exchange->placed);
      exchange->placed = nullptr;
      tell(exchange);
    }
    for (const std::function<void()>& done : parts_done) done();
    for (auto& [exchange, status] : finished) {
      if (exchange->trace != nullptr) timeline->Add(std::move(exchange->trace), status);
      exchange->request.done(status);
      exchange->request.done = nullptr;
      const auto drop_input = std::exchange(exchange->memory.drop_input, nullptr);
      if (status.ok() && drop_input && !exchange->has_moved) drop_input();
    }
  }
};

// Locks a worker's mutex for as long as it lives, then performs what was collected meanwhile: never
// before the mutex is free.
class BYTEPS_SCOPED_CAPABILITY Worker::Transaction {
 public:
  explicit Transaction(Worker* worker) BYTEPS_ACQUIRE(worker->mutex_)
      : mutex_(worker->mutex_), actions_(worker) {
    mutex_.Lock();
  }
  ~Transaction() BYTEPS_RELEASE() {
    mutex_.Unlock();
    actions_.Perform();
  }
  Transaction(const Transaction&) = delete;
  Transaction& operator=(const Transaction&) = delete;

  Actions* actions() { return &actions_; }

 private:
  Mutex& mutex_;
  Actions actions_;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_WORKER_WORKER_ACTIONS_H_

// ControlSession: the messages between the coordinator and one other process, over one connection
// after another. When a connection breaks, none is lost and none comes twice.
//
// Messages are numbered from 1 on; every frame says how many of the peer's have been taken in. What
// the peer has not taken in goes again over the next connection. Heartbeats have no number: they
// tell that one is alive, and acknowledge when nothing else does.
#ifndef TF_BYTEPS_CC_COORDINATOR_CONTROL_SESSION_H_
#define TF_BYTEPS_CC_COORDINATOR_CONTROL_SESSION_H_

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "cc/van/van.h"
#include "cc/wire/control.h"

namespace byteps {

// The frame that carries `message`.
OutgoingFrame ControlFrame(const ControlMessage& message);

// Thread-safe.
class ControlSession {
 public:
  // Sends over the connection that there is, or over the next one.
  void Send(const ControlMessage& message);

  // From OnOpen: this connection from now on. Sends what the peer has not taken in.
  void Attach(const std::shared_ptr<Connection>& connection);
  // From OnClosed. False if another connection has taken this one's place: nothing has changed.
  bool Detach(const Connection& connection);

  // Null while there is none.
  std::shared_ptr<Connection> connection() const;

  // From OnFrame. `is_new`: the message is to be processed; it is not if it came before, or over a
  // connection that another one has replaced. INVALID_ARGUMENT if it is not the next one.
  Status Receive(const Connection& connection, const FrameHeader& header, bool* is_new);

  // The peer is gone: nothing is kept for it any more.
  void Forget();

 private:
  mutable std::mutex mutex_;  // guards all below
  std::shared_ptr<Connection> connection_;
  std::deque<OutgoingFrame> kept_;  // not acknowledged; the numbers are consecutive
  uint64_t last_number_ = 0;        // that was sent
  uint64_t received_ = 0;           // of the peer's messages
  bool forgotten_ = false;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_COORDINATOR_CONTROL_SESSION_H_

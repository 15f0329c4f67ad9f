// ControlSession: the messages between the coordinator and one other process, over one connection
// after another. When a connection breaks, none is lost and none comes twice.
//
// Messages are numbered from 1 on; every frame says how many of the peer's have been taken in. What
// the peer has not taken in goes again over the next connection. A long message goes in pieces,
// each with a number of its own: FrameHeader::element_count says how many of its bytes follow.
// Heartbeats have no number: they tell that one is alive, and acknowledge when nothing else does.
// They leave before all other messages.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>

#include "cc/base/mutex.h"
#include "cc/van/van.h"
#include "cc/wire/control.h"

namespace byteps {

inline constexpr uint64_t kMostPieceBytes = uint64_t{1} << 20;
// No message is longer: the table of a model of 10^12 bytes in parts of 128 KB is 128 MB.
inline constexpr uint64_t kMostMessageBytes = uint64_t{512} << 20;

// Thread-safe.
class ControlSession {
 public:
  // Sends over the connection that there is, or over the next one.
  void Send(const ControlMessage& message);
  // The same for what ControlFrame has made of a message, once for all who get it.
  void SendFrame(OutgoingFrame frame, bool is_heartbeat);

  // From OnOpen: this connection from now on. Sends what the peer has not taken in.
  void Attach(const std::shared_ptr<Connection>& connection);
  // From OnClosed. False if another connection has taken this one's place: nothing has changed.
  bool Detach(const Connection& connection);

  // Null while there is none.
  std::shared_ptr<Connection> connection() const;

  // From OnFrame. `is_new`: the message is to be processed; it is not if it came before, or over a
  // connection that another one has replaced. INVALID_ARGUMENT if it is not the next one.
  Status Receive(const Connection& connection, const FrameHeader& header, bool* is_new);

  // After Receive, of a frame that is new: sets `message` to the whole message if this was its last
  // piece, else leaves it empty. INVALID_ARGUMENT if there are too many.
  Status Assemble(const Connection& connection, const FrameHeader& header, std::string piece,
                  std::string* message);

  // Whether anything has come from the peer.
  bool has_heard() const;

  // Connection::last_heard_ns of the connection that there is; 0 if there is none.
  int64_t last_heard_ns() const;

  // The peer is gone: nothing is kept for it any more.
  void Forget();

 private:
  mutable Mutex mutex_;
  std::shared_ptr<Connection> connection_ BYTEPS_GUARDED_BY(mutex_);
  std::deque<OutgoingFrame> kept_
      BYTEPS_GUARDED_BY(mutex_);  // not acknowledged; the numbers are consecutive
  uint64_t last_number_ BYTEPS_GUARDED_BY(mutex_) = 0;  // that was sent
  uint64_t received_ BYTEPS_GUARDED_BY(mutex_) = 0;     // of the peer's messages
  std::string begun_ BYTEPS_GUARDED_BY(mutex_);         // the pieces of a message that are here
  bool has_heard_ BYTEPS_GUARDED_BY(mutex_) = false;
  bool forgotten_ BYTEPS_GUARDED_BY(mutex_) = false;
};

// The control frames of one side: collects payloads and decodes them. Base of the link and of the
// coordinator.
class ControlHandler : public ConnectionHandler {
 public:
  Status OnHeader(Connection& connection, const FrameHeader& header,
                  std::shared_ptr<PayloadSink>* sink) final;
  Status OnFrame(Connection& connection, const FrameHeader& header,
                 std::shared_ptr<PayloadSink> sink) final;

 protected:
  // The messages that come over `connection`; never null.
  virtual std::shared_ptr<ControlSession> SessionOf(Connection& connection) = 0;
  // An error closes the connection with that reason.
  virtual Status OnMessage(Connection& connection, ControlMessage message) = 0;
};

}  // namespace byteps

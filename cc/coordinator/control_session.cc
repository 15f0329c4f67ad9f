#include "cc/coordinator/control_session.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "cc/van/buffer_sink.h"
#include "cc/wire/control_frame.h"

namespace byteps {

void ControlSession::Send(const ControlMessage& message) {
  SendFrame(ControlFrame(message), std::holds_alternative<Heartbeat>(message));
}

// Sent with the mutex held, so that messages leave in the order of their numbers.
void ControlSession::SendFrame(OutgoingFrame frame, bool is_heartbeat) {
  MutexLock lock(mutex_);
  frame.header.watermark = received_;
  frame.is_sign_of_life = is_heartbeat;
  uint64_t left = frame.header.payload_bytes;
  do {
    OutgoingFrame piece = frame;
    piece.header.payload_bytes = std::min(left, kMostPieceBytes);
    left -= piece.header.payload_bytes;
    piece.header.element_count = left;
    if (!is_heartbeat) {
      piece.header.round = ++last_number_;
      if (!forgotten_) kept_.push_back(piece);
    }
    if (connection_ != nullptr) connection_->Send(std::move(piece));
    frame.payload = static_cast<const char*>(frame.payload) + kMostPieceBytes;
  } while (left > 0);
}

void ControlSession::Attach(const std::shared_ptr<Connection>& connection) {
  MutexLock lock(mutex_);
  connection_ = connection;
  for (OutgoingFrame& frame : kept_) {
    frame.header.watermark = received_;
    connection->Send(frame);
  }
}

bool ControlSession::Detach(const Connection& connection) {
  MutexLock lock(mutex_);
  if (connection_.get() != &connection) return false;
  connection_ = nullptr;
  return true;
}

std::shared_ptr<Connection> ControlSession::connection() const {
  MutexLock lock(mutex_);
  return connection_;
}

Status ControlSession::Receive(const Connection& connection, const FrameHeader& header,
                               bool* is_new) {
  *is_new = false;
  MutexLock lock(mutex_);
  if (connection_.get() != &connection) return OkStatus();
  has_heard_ = true;
  if (header.watermark > last_number_ || header.round > received_ + 1) {
    return InvalidArgument(connection.peer_name() + " sent message " +
                           std::to_string(header.round) + ", acknowledging " +
                           std::to_string(header.watermark) + ", where " +
                           std::to_string(received_ + 1) + " was the next and " +
                           std::to_string(last_number_) + " the last that it was sent");
  }
  while (!kept_.empty() && kept_.front().header.round <= header.watermark) kept_.pop_front();
  *is_new = header.round == 0 || header.round == received_ + 1;
  if (header.round > 0 && *is_new) ++received_;
  return OkStatus();
}

Status ControlSession::Assemble(const Connection& connection, const FrameHeader& header,
                                std::string piece, std::string* message) {
  if (header.round == 0) {
    *message = std::move(piece);
    return OkStatus();
  }
  MutexLock lock(mutex_);
  const uint64_t bytes = begun_.size() + piece.size();
  if (header.element_count > kMostMessageBytes || bytes + header.element_count > kMostMessageBytes)
    return InvalidArgument(connection.peer_name() + " sent a message of more than " +
                           std::to_string(kMostMessageBytes) + " bytes");
  if (begun_.empty())
    begun_ = std::move(piece);
  else
    begun_ += piece;
  if (header.element_count == 0) *message = std::exchange(begun_, {});
  return OkStatus();
}

bool ControlSession::has_heard() const {
  MutexLock lock(mutex_);
  return has_heard_;
}

int64_t ControlSession::last_heard_ns() const {
  const std::shared_ptr<Connection> connection = this->connection();
  return connection == nullptr ? 0 : connection->last_heard_ns();
}

void ControlSession::Forget() {
  MutexLock lock(mutex_);
  kept_.clear();
  forgotten_ = true;
}

Status ControlHandler::OnHeader(Connection& connection, const FrameHeader& header,
                                std::shared_ptr<PayloadSink>* sink) {
  if (header.type != FrameType::kControl) {
    return InvalidArgument(connection.peer_name() + " sent a data frame on a control connection");
  }
  *sink = std::make_shared<BufferSink>();
  return OkStatus();
}

Status ControlHandler::OnFrame(Connection& connection, const FrameHeader& header,
                               std::shared_ptr<PayloadSink> sink) {
  if (sink == nullptr)
    return InvalidArgument(connection.peer_name() + " sent an empty control frame");
  const std::shared_ptr<ControlSession> session = SessionOf(connection);
  bool is_new = false;
  BYTEPS_RETURN_IF_ERROR(session->Receive(connection, header, &is_new));
  if (!is_new) return OkStatus();
  std::string bytes;
  BYTEPS_RETURN_IF_ERROR(
      session->Assemble(connection, header, static_cast<BufferSink&>(*sink).Take(), &bytes));
  if (header.element_count > 0) return OkStatus();  // the rest is to come
  ControlMessage message;
  const Status status = DecodeControl(bytes, &message);
  if (!status.ok()) return Status(status.code(), connection.peer_name() + ": " + status.message());
  if (std::holds_alternative<Heartbeat>(message) != (header.round == 0))
    return InvalidArgument(connection.peer_name() + " sent a message without a number");
  return OnMessage(connection, std::move(message));
}

}  // namespace byteps

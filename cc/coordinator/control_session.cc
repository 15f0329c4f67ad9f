#include "cc/coordinator/control_session.h"

#include <string>
#include <utility>
#include <variant>

namespace byteps {

OutgoingFrame ControlFrame(const ControlMessage& message) {
  auto bytes = std::make_shared<const std::string>(EncodeControl(message));
  OutgoingFrame frame;
  frame.header.type = FrameType::kControl;
  frame.header.payload_bytes = bytes->size();
  frame.payload = bytes->data();
  frame.keep_alive = std::move(bytes);
  return frame;
}

// Sent with the mutex held, so that messages leave in the order of their numbers.
void ControlSession::Send(const ControlMessage& message) {
  OutgoingFrame frame = ControlFrame(message);
  const bool is_heartbeat = std::holds_alternative<Heartbeat>(message);
  std::lock_guard<std::mutex> lock(mutex_);
  frame.header.watermark = received_;
  if (!is_heartbeat) {
    frame.header.round = ++last_number_;
    if (!forgotten_) kept_.push_back(frame);
  }
  if (connection_ != nullptr) connection_->Send(std::move(frame));
}

void ControlSession::Attach(const std::shared_ptr<Connection>& connection) {
  std::lock_guard<std::mutex> lock(mutex_);
  connection_ = connection;
  for (OutgoingFrame& frame : kept_) {
    frame.header.watermark = received_;
    connection->Send(frame);
  }
}

bool ControlSession::Detach(const Connection& connection) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (connection_.get() != &connection) return false;
  connection_ = nullptr;
  return true;
}

std::shared_ptr<Connection> ControlSession::connection() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return connection_;
}

Status ControlSession::Receive(const Connection& connection, const FrameHeader& header,
                               bool* is_new) {
  *is_new = false;
  std::lock_guard<std::mutex> lock(mutex_);
  if (connection_.get() != &connection) return OkStatus();
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

void ControlSession::Forget() {
  std::lock_guard<std::mutex> lock(mutex_);
  kept_.clear();
  forgotten_ = true;
}

}  // namespace byteps

#include "cc/coordinator/coordinator_link.h"

#include "cc/base/clock.h"
#include "cc/van/buffer_sink.h"

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

void SendControl(Connection& connection, const ControlMessage& message) {
  connection.Send(ControlFrame(message));
}

Status ControlHandler::OnHeader(Connection& connection, const FrameHeader& header,
                                std::shared_ptr<PayloadSink>* sink) {
  if (header.type != FrameType::kControl) {
    return InvalidArgument(connection.peer_name() + " sent a data frame on a control connection");
  }
  *sink = std::make_shared<BufferSink>();
  return OkStatus();
}

Status ControlHandler::OnFrame(Connection& connection, const FrameHeader&,
                               std::shared_ptr<PayloadSink> sink) {
  if (sink == nullptr)
    return InvalidArgument(connection.peer_name() + " sent an empty control frame");
  ControlMessage message;
  const Status status = DecodeControl(static_cast<BufferSink&>(*sink).Take(), &message);
  if (!status.ok()) return Status(status.code(), connection.peer_name() + ": " + status.message());
  return OnMessage(connection, std::move(message));
}

CoordinatorLink::CoordinatorLink(std::function<void(ControlMessage)> on_message,
                                 std::function<void(const Status&)> on_lost)
    : on_message_(std::move(on_message)), on_lost_(std::move(on_lost)) {}

CoordinatorLink::~CoordinatorLink() { Stop(); }

Status CoordinatorLink::Start(Van* van, const JobDescription& job, Role role, int32_t rank) {
  Hello hello;
  hello.job_id = job.job_id;
  hello.epoch = job.epoch;
  hello.role = role;
  hello.rank = rank;
  Hello peer;
  peer.role = Role::kCoordinator;
  peer.rank = 0;
  last_seen_ns_ = MonotonicNanos();
  std::shared_ptr<Connection> connection;  // OnOpen has kept it already
  BYTEPS_RETURN_IF_ERROR(van->Connect(job.coordinator_endpoint, hello, peer, this,
                                      job.options.connect_timeout, &connection));
  const double timeout = job.options.heartbeat_timeout;
  heartbeat_.Start("byteps-beat", job.options.heartbeat_interval, [this, timeout] {
    Send(Heartbeat{});
    const int64_t silence_ns = MonotonicNanos() - last_seen_ns_;
    if (silence_ns <= SecondsToNanos(timeout)) return;
    Lost(Unavailable("the scheduler at " + connection_->peer_name() + " has been silent for " +
                     std::to_string(silence_ns / 1000000000) + " s"));
  });
  return OkStatus();
}

void CoordinatorLink::OnOpen(const std::shared_ptr<Connection>& connection) {
  connection_ = connection;
}

void CoordinatorLink::Send(const ControlMessage& message) { SendControl(*connection_, message); }

void CoordinatorLink::Stop() {
  quiet_ = true;
  heartbeat_.Stop();
}

Status CoordinatorLink::OnMessage(Connection&, ControlMessage message) {
  last_seen_ns_ = MonotonicNanos();
  if (!std::holds_alternative<Heartbeat>(message) && !quiet_) on_message_(std::move(message));
  return OkStatus();
}

void CoordinatorLink::OnClosed(Connection& connection, const Status& reason) {
  Lost(Unavailable("the connection to the scheduler (" + connection.peer_name() +
                   ") is lost: " + reason.message()));
}

void CoordinatorLink::Lost(const Status& reason) {
  if (!quiet_.exchange(true)) on_lost_(reason);
}

}  // namespace byteps

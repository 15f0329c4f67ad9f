// How two ends agree: the part of RdmaConnection that runs on the TCP connection's thread.
#include <sys/epoll.h>

#include <algorithm>
#include <chrono>

#include "cc/base/clock.h"
#include "cc/base/logging.h"
#include "cc/van/rdma/rdma_connection.h"

namespace byteps {
namespace {

constexpr uint64_t kMaxSetupBytes = 4096;
constexpr auto kLook = std::chrono::milliseconds(50);

}  // namespace

RdmaConnection::RdmaConnection(RdmaVanParts* parts, std::shared_ptr<RdmaDevice> device,
                               EventLoop* loop, Side side, ConnectionHandler* handler,
                               std::function<void(RdmaConnection*)> forget)
    : parts_(parts),
      device_(std::move(device)),
      loop_(loop),
      side_(side),
      handler_(handler),
      forget_(std::move(forget)) {}

Status RdmaConnection::WaitUntilOpen(int64_t deadline_ns, const std::function<Status()>& in_vain) {
  std::unique_lock<std::mutex> lock(opened_mutex_);
  const auto is_decided = [this] { return opening_ || opened_.has_value(); };
  while (!opened_changed_.wait_for(lock, kLook, is_decided)) {
    Status given_up;
    if (MonotonicNanos() > deadline_ns) {
      has_no_path_ = stage_ == Stage::kGreeting;
      given_up = DeadlineExceeded(
          peer_name() + (has_no_path_ ? " has not been reached by RDMA"
                                      : " has not answered the offer of an RDMA connection"));
    } else if (in_vain != nullptr) {
      lock.unlock();  // of whoever asks
      given_up = in_vain();
      lock.lock();
    }
    if (!given_up.ok() && !is_decided()) opened_ = given_up;
  }
  opened_changed_.wait(lock, [this] { return opened_.has_value(); });
  return *opened_;
}

// False if nobody waits for the connection any more.
bool RdmaConnection::BeginToOpen() {
  std::lock_guard<std::mutex> lock(opened_mutex_);
  opening_ = !opened_.has_value();
  opened_changed_.notify_all();
  return opening_;
}

void RdmaConnection::SetOpened(const Status& status) {
  std::lock_guard<std::mutex> lock(opened_mutex_);
  if (opened_.has_value()) return;
  opened_ = status;
  opened_changed_.notify_all();
}

void RdmaConnection::OnOpen(const std::shared_ptr<Connection>& tcp) {
  tcp_ = tcp;
  if (side_ == Side::kAccepting) return;  // the other side begins
  Status status;
  if ((tcp->peer().features & kRdmaFeature) == 0) {
    status = FallBackToTcp(FailedPrecondition("the other side has no RDMA"));
  } else {
    RdmaOffer offer;
    const RdmaWindow window = WindowFor(parts_->expected_connections);
    offer.status = QueuePair::New(device_, window, parts_->options.rdma, &prepared_);
    if (offer.status.ok()) offer = prepared_->offer();
    SendSetup(offer);
    if (!offer.status.ok()) status = FallBackToTcp(offer.status);
  }
  if (!status.ok()) tcp->Close(status);
}

Status RdmaConnection::OnHeader(Connection&, const FrameHeader& header,
                                std::shared_ptr<PayloadSink>* sink) {
  if (stage_ == Stage::kTcp) return handler_->OnHeader(*this, header, sink);
  if (stage_ != Stage::kAgreeing || header.type != FrameType::kControl ||
      header.payload_bytes > kMaxSetupBytes) {
    return InvalidArgument(peer_name() + " sent a frame over TCP that belongs to RDMA");
  }
  *sink = std::make_shared<BufferSink>();
  return OkStatus();
}

Status RdmaConnection::OnFrame(Connection&, const FrameHeader& header,
                               std::shared_ptr<PayloadSink> sink) {
  if (stage_ == Stage::kTcp) return handler_->OnFrame(*this, header, std::move(sink));
  if (stage_ != Stage::kAgreeing || sink == nullptr)
    return InvalidArgument(peer_name() + " sent a frame over TCP that belongs to RDMA");
  ++parts_->setup_frames_received;
  parts_->setup_bytes_received += header.payload_bytes;
  RdmaOffer offer;
  Status status = DecodeRdmaOffer(static_cast<BufferSink&>(*sink).Take(), &offer);
  if (status.ok()) status = OnSetup(offer);
  if (!status.ok()) SetOpened(status);
  return status;
}

void RdmaConnection::OnDrained(Connection&) {
  if (stage_ == Stage::kTcp) handler_->OnDrained(*this);
}

void RdmaConnection::OnClosed(Connection&, const Status& reason) {
  const Stage stage = stage_.exchange(Stage::kOver);
  prepared_.reset();
  const std::shared_ptr<RdmaConnection> self = shared_from_this();
  if (stage == Stage::kGreeting || stage == Stage::kRdma) {
    loop_->Post([self, reason] { self->OnTcpClosed(reason); });
  } else {
    SetOpened(reason);
  }
  if (stage == Stage::kTcp) handler_->OnClosed(*this, reason);
  forget_(this);
}

Status RdmaConnection::OnSetup(const RdmaOffer& offer) {
  if (!offer.status.ok()) return FallBackToTcp(offer.status);
  if (side_ == Side::kConnecting) return FinishSetup(offer);
  if (prepared_ == nullptr) return Answer(offer);
  return BeginToGreet();
}

Status RdmaConnection::Answer(RdmaOffer offer) {
  RdmaOffer answer;
  const RdmaWindow own = WindowFor(parts_->expected_connections);
  RdmaWindow window = offer.window;
  window.slots = std::min(window.slots, own.slots);
  window.sends = std::min(window.sends, own.sends);
  window.slot_payload_bytes = std::min(window.slot_payload_bytes, own.slot_payload_bytes);
  answer.status = QueuePair::New(device_, window, parts_->options.rdma, &prepared_);
  if (answer.status.ok()) {
    offer.window = prepared_->window();
    answer.status = prepared_->Connect(offer);
  }
  if (answer.status.ok()) answer = prepared_->offer();
  SendSetup(answer);
  return answer.status.ok() ? OkStatus() : FallBackToTcp(answer.status);
}

Status RdmaConnection::FinishSetup(const RdmaOffer& answer) {
  RdmaOffer ready = prepared_->offer();
  ready.status = prepared_->Connect(answer);
  SendSetup(ready);
  return ready.status.ok() ? BeginToGreet() : FallBackToTcp(ready.status);
}

void RdmaConnection::SendSetup(const RdmaOffer& offer) {
  const auto bytes = std::make_shared<const std::string>(EncodeRdmaOffer(offer));
  OutgoingFrame frame;
  frame.header.type = FrameType::kControl;
  frame.header.payload_bytes = bytes->size();
  frame.payload = bytes->data();
  frame.keep_alive = bytes;
  ++parts_->setup_frames_sent;
  parts_->setup_bytes_sent += bytes->size();
  tcp_->Send(std::move(frame));
}

Status RdmaConnection::FallBackToTcp(const Status& reason) {
  prepared_.reset();
  if (parts_->options.transport == Transport::kRdma) {
    const Status refused(reason.code(), "no RDMA connection with " + peer_name() + ": " +
                                            reason.message() +
                                            ". BYTEPS_VAN=rdma demands one; BYTEPS_VAN=auto would "
                                            "go on over TCP");
    SetOpened(refused);
    return refused;
  }
  if (!BeginToOpen()) return Cancelled("the connection was given up");
  LogWarning("no RDMA connection with " + peer_name() + ", going on over TCP: " + reason.message(),
             {"rdma_unavailable", {{"peer", peer_name()}}});
  stage_ = Stage::kTcp;
  handler_->OnOpen(shared_from_this());
  SetOpened(OkStatus());
  return OkStatus();
}

Status RdmaConnection::BeginToGreet() {
  int descriptor = -1;
  {
    std::lock_guard<std::mutex> lock(send_mutex_);
    queue_pair_ = std::move(prepared_);
    window_ =
        std::make_unique<SendWindow>(queue_pair_.get(), parts_->memory.get(), &parts_->counters);
    descriptor = queue_pair_->descriptor();
    if (side_ == Side::kConnecting) BYTEPS_RETURN_IF_ERROR(window_->Greet());
  }
  stage_ = Stage::kGreeting;
  loop_->Add(descriptor, EPOLLIN, shared_from_this());
  return OkStatus();
}

// The loop's thread: this side has been greeted.
Status RdmaConnection::UpgradeToRdma() {
  Stage expected = Stage::kGreeting;
  if (!stage_.compare_exchange_strong(expected, Stage::kRdma))
    return Unavailable(peer_name() + " closed the connection");
  if (!BeginToOpen()) return Cancelled("the connection was given up");
  if (side_ == Side::kAccepting) {
    std::lock_guard<std::mutex> lock(send_mutex_);
    BYTEPS_RETURN_IF_ERROR(window_->Greet());
  }
  LogDebug("RDMA connection with " + peer_name() + " on " + device_->name());
  is_told_ = true;
  handler_->OnOpen(shared_from_this());
  SetOpened(OkStatus());
  return OkStatus();
}

}  // namespace byteps

#include "cc/van/rdma/rdma_connection.h"

#include <algorithm>

#include "cc/base/clock.h"
#include "cc/base/guarded.h"
#include "cc/base/logging.h"

namespace byteps {
namespace {

// After so much from one connection the loop looks at the others: twice what comes at once.
constexpr uint64_t kReceiveBudget = 2 * 1024 * 1024;
// A caller of Send copies so much itself; more is left to the loop, so that Send stays short.
constexpr uint64_t kInlineBytes = 64 * 1024;
// A thread that has spun in vain spins less the next time, down to this share of the limit.
constexpr int64_t kLeastSpinShare = 16;

}  // namespace

void RdmaConnection::Send(OutgoingFrame frame) {
  if (stage_ == Stage::kTcp) return tcp_->Send(std::move(frame));
  std::vector<std::shared_ptr<const void>> finished;  // dropped after the lock
  std::lock_guard<std::mutex> lock(send_mutex_);
  if (finished_ || closing_ || window_ == nullptr) {
    finished.push_back(std::move(frame.keep_alive));
    return;
  }
  window_->Push(std::move(frame));
  if (window_->waiting_bytes() <= kInlineBytes) {
    const Status status = window_->Pump(&finished);
    if (!status.ok()) loop_->Post([self = shared_from_this(), status] { self->Finish(status); });
    if (!status.ok() || !window_->HoldsBack()) return;
  }
  if (pump_posted_) return;
  pump_posted_ = true;
  loop_->Post([self = shared_from_this()] { self->PumpOnLoop(); });
}

uint64_t RdmaConnection::Revoke(const void* owner,
                                std::vector<std::shared_ptr<const void>>* dropped) {
  if (stage_ == Stage::kTcp) return tcp_->Revoke(owner, dropped);
  std::lock_guard<std::mutex> lock(send_mutex_);
  return window_ == nullptr ? 0 : window_->Revoke(owner, dropped);
}

bool RdmaConnection::is_idle() const {
  if (stage_ == Stage::kTcp) return tcp_->is_idle();
  std::lock_guard<std::mutex> lock(send_mutex_);
  return window_ == nullptr || window_->waiting_bytes() == 0;
}

void RdmaConnection::Close(const Status& reason) {
  {
    std::lock_guard<std::mutex> lock(send_mutex_);
    if (finished_ || closing_.exchange(true)) return;
    close_reason_ = reason;
  }
  // Its end is this one's, see OnClosed.
  tcp_->Close(reason);
}

void RdmaConnection::OnEvents(uint32_t) {
  if (queue_pair_ == nullptr) return;
  queue_pair_->TakeEvent();
  Turn();
}

void RdmaConnection::OnStop() { Finish(Cancelled("this side is shutting down")); }

void RdmaConnection::Turn() {
  if (queue_pair_ == nullptr) return;
  received_this_turn_ = 0;
  Status status;
  while (true) {
    const uint64_t before = received_this_turn_;
    status = Guarded([this] { return TakeCompletions(); });
    // Also after an error: what was taken in before it counts.
    if (received_this_turn_ > before && !closing_) handler_->OnDrained(*this);
    if (!status.ok() || closing_) break;
    if (HasBudget() && SpinUntilPending()) continue;
    if (!queue_pair_->Pending()) {
      status = Arm();
      if (!status.ok() || !queue_pair_->Pending()) break;
    }
    if (HasBudget()) continue;
    loop_->Post([self = shared_from_this()] { self->Turn(); });
    break;
  }
  if (closing_ || status.ok()) return;  // closing: OnTcpClosed follows
  has_no_path_ = !is_told_;
  Finish(status);
}

Status RdmaConnection::Arm() {
  BYTEPS_RETURN_IF_ERROR(queue_pair_->ArmReceived());
  std::lock_guard<std::mutex> lock(send_mutex_);
  return window_->WaitsForDevice() ? queue_pair_->ArmSent() : OkStatus();
}

bool RdmaConnection::HasBudget() const { return received_this_turn_ < kReceiveBudget; }

// After traffic only: a connection that is idle lets its thread sleep.
bool RdmaConnection::SpinUntilPending() {
  const int64_t limit = SecondsToNanos(parts_->options.rdma.spin);
  if (limit == 0 || received_this_turn_ == 0) return false;
  if (spin_ns_ == 0) spin_ns_ = limit;
  const int64_t deadline = MonotonicNanos() + spin_ns_;
  do {
    if (queue_pair_->Pending()) {
      spin_ns_ = limit;
      return true;
    }
  } while (MonotonicNanos() < deadline && !closing_);
  spin_ns_ = std::max(limit / kLeastSpinShare, spin_ns_ / 2);
  return false;
}

Status RdmaConnection::TakeCompletions() {
  while (!closing_ && HasBudget()) {
    QueuePair::Completion completion;
    bool found = false;
    BYTEPS_RETURN_IF_ERROR(queue_pair_->Poll(&completion, &found));
    if (!found) return OkStatus();
    BYTEPS_RETURN_IF_ERROR(OnCompletion(completion));
  }
  return OkStatus();
}

Status RdmaConnection::OnCompletion(const QueuePair::Completion& completion) {
  std::vector<std::shared_ptr<const void>> finished;  // dropped after the lock
  switch (completion.kind) {
    case QueuePair::Kind::kReceivedSlot: return OnReceivedSlots(completion);
    case QueuePair::Kind::kReceivedSend: return OnReceivedSend(completion);
    case QueuePair::Kind::kWritten: {
      std::lock_guard<std::mutex> lock(send_mutex_);
      window_->OnWritten(completion.index, &finished);
      return window_->Pump(&finished);
    }
    case QueuePair::Kind::kSent: {
      std::lock_guard<std::mutex> lock(send_mutex_);
      window_->OnSent(completion.index, &finished);
      BYTEPS_RETURN_IF_ERROR(window_->Pump(&finished));
      return window_->FlushReturns();  // may have waited for the buffer
    }
  }
  return Internal("a completion of unknown kind");
}

Status RdmaConnection::Malformed(const std::string& what) const {
  return InvalidArgument(peer_name() + " sent " + what + " by RDMA");
}

Status RdmaConnection::OnReceivedSend(const QueuePair::Completion& completion) {
  parts_->counters.wire_bytes_received += completion.bytes;
  if (completion.bytes < kFrameHeaderBytes) return Malformed("less than a frame's header");
  const uint8_t* const bytes = queue_pair_->received_send(completion.index);
  FrameHeader header;
  const Status status = DecodeFrameHeader(bytes, &header);
  if (!status.ok()) return Status(status.code(), peer_name() + ": " + status.message());
  if (header.type == FrameType::kRoomReturned) {
    BYTEPS_RETURN_IF_ERROR(queue_pair_->Repost(completion.index));
    return OnRoomReturned(header);
  }
  if (!is_told_) return Malformed("a frame before its greeting");
  if (incoming_.piece_left() > 0) return Malformed("a frame inside of another one");
  const uint32_t payload_bytes = completion.bytes - kFrameHeaderBytes;
  if (header.payload_bytes != payload_bytes) return Malformed("a frame of another length");
  BYTEPS_RETURN_IF_ERROR(BeginFrame(header));
  if (payload_bytes > 0) TakePayload(bytes + kFrameHeaderBytes, payload_bytes);
  BYTEPS_RETURN_IF_ERROR(EndPiece());
  BYTEPS_RETURN_IF_ERROR(queue_pair_->Repost(completion.index));
  std::lock_guard<std::mutex> lock(send_mutex_);
  window_->Return(0, 1);
  return window_->FlushReturns();
}

// The first one is the greeting.
Status RdmaConnection::OnRoomReturned(const FrameHeader& header) {
  if (!is_told_) return UpgradeToRdma();
  std::vector<std::shared_ptr<const void>> finished;  // dropped after the lock
  std::lock_guard<std::mutex> lock(send_mutex_);
  BYTEPS_RETURN_IF_ERROR(window_->OnReturned(header.element_count, header.row_count));
  return window_->Pump(&finished);
}

Status RdmaConnection::OnReceivedSlots(const QueuePair::Completion& completion) {
  if (!is_told_) return Malformed("a frame before its greeting");
  const SlotMessage message = SlotMessage::Decode(completion.index);
  const uint32_t slots = queue_pair_->window().slots;
  if (message.slot >= slots) return Malformed("a slot that there is not");
  uint32_t taken = 0;
  for (bool is_last = false; !is_last && !closing_; ++taken) {
    is_last = next_slot_ == message.slot;
    const std::optional<uint32_t> written =
        is_last ? std::make_optional(completion.bytes) : std::nullopt;
    BYTEPS_RETURN_IF_ERROR(TakeSlot(next_slot_, written));
    next_slot_ = (next_slot_ + 1) % slots;
  }
  BYTEPS_RETURN_IF_ERROR(queue_pair_->Repost(queue_pair_->last_receive()));
  std::vector<std::shared_ptr<const void>> finished;  // dropped after the lock
  std::lock_guard<std::mutex> lock(send_mutex_);
  window_->Return(taken, 0);
  if (message.returned > 0) {
    BYTEPS_RETURN_IF_ERROR(window_->OnReturned(message.returned, 0));
    BYTEPS_RETURN_IF_ERROR(window_->Pump(&finished));
  }
  return window_->FlushReturns();
}

// `written`: its length, which is told of the last slot only; of the others the header says it.
Status RdmaConnection::TakeSlot(uint32_t index, std::optional<uint32_t> written) {
  const uint8_t* const slot = queue_pair_->received_slot(index);
  uint32_t length = 0;
  if (incoming_.piece_left() == 0) {
    FrameHeader header;
    const Status status = DecodeFrameHeader(slot, &header);
    if (!status.ok()) return Status(status.code(), peer_name() + ": " + status.message());
    length = kFrameHeaderBytes;
    BYTEPS_RETURN_IF_ERROR(header.type == FrameType::kMore ? incoming_.GoOn(peer_name(), header)
                                                           : BeginFrame(header));
  }
  const auto bytes = static_cast<uint32_t>(
      std::min<uint64_t>(incoming_.piece_left(), queue_pair_->window().slot_payload_bytes));
  length += bytes;
  if (written.value_or(length) != length)
    return Malformed("a slot of another length than its frame has announced");
  parts_->counters.wire_bytes_received += length;
  if (bytes > 0) TakePayload(slot + kFrameHeaderBytes, bytes);
  return incoming_.piece_left() == 0 ? EndPiece() : OkStatus();
}

Status RdmaConnection::BeginFrame(const FrameHeader& header) {
  if (header.type >= FrameType::kMemoryReadable || header.place != PayloadLocation::kFollows)
    return Malformed("a frame that belongs to TCP");
  BYTEPS_RETURN_IF_ERROR(incoming_.Begin(peer_name(), header));
  if (header.payload_bytes == 0) return OkStatus();
  return handler_->OnHeader(*this, header, &incoming_.last().sink);
}

void RdmaConnection::TakePayload(const uint8_t* data, uint32_t bytes) {
  const IncomingFrames::Frame& frame = incoming_.last();
  if (frame.sink != nullptr)
    parts_->counters.bytes_copied += frame.sink->Take(data, bytes, frame.payload_left);
  incoming_.Advance(bytes);
}

Status RdmaConnection::EndPiece() {
  if (incoming_.last().payload_left > 0) return OkStatus();
  IncomingFrames::Frame ended = incoming_.TakeLast();
  received_this_turn_ += kFrameHeaderBytes + ended.header.payload_bytes;
  AtomicVanCounters& counters = parts_->counters;
  ++counters.frames_received;
  counters.payload_bytes_received += ended.header.payload_bytes;
  counters.rdma_bytes_received += ended.header.payload_bytes;
  return handler_->OnFrame(*this, ended.header, std::move(ended.sink));
}

void RdmaConnection::PumpOnLoop() {
  std::vector<std::shared_ptr<const void>> finished;  // dropped after the lock
  Status status;
  bool holds_back = false;
  {
    std::lock_guard<std::mutex> lock(send_mutex_);
    pump_posted_ = false;
    if (finished_ || closing_) return;
    status = window_->Pump(&finished);
    holds_back = window_->HoldsBack();
  }
  if (!status.ok()) return Finish(status);
  if (holds_back) Turn();
}

void RdmaConnection::OnTcpClosed(const Status& reason) {
  // What the peer wrote before it hung up.
  while (queue_pair_ != nullptr && !closing_ && queue_pair_->Pending()) {
    received_this_turn_ = 0;
    if (!TakeCompletions().ok()) break;
  }
  Status given = reason;
  if (closing_) {
    std::lock_guard<std::mutex> lock(send_mutex_);
    given = close_reason_;
  }
  Finish(given);
}

void RdmaConnection::Finish(const Status& reason) {
  std::vector<std::shared_ptr<const void>> dropped;
  const std::shared_ptr<RdmaConnection> self = shared_from_this();  // the loop drops its reference
  {
    std::lock_guard<std::mutex> lock(send_mutex_);
    if (finished_ || queue_pair_ == nullptr) return;
    finished_ = true;
    window_->Clear(&dropped);
    loop_->Remove(queue_pair_->descriptor());
    queue_pair_.reset();
  }
  incoming_.Clear();
  LogDebug("RDMA connection with " + peer_name() + " has ended: " + reason.ToString());
  tcp_->Close(reason);
  if (is_told_) return handler_->OnClosed(*this, reason);
  SetOpened(reason);
}

}  // namespace byteps

#include "cc/van/rdma/send_window.h"

#include <algorithm>
#include <cstring>

namespace byteps {

SendWindow::SendWindow(QueuePair* queue_pair, const RegisteredMemory* memory,
                       AtomicVanCounters* counters)
    : queue_pair_(queue_pair),
      memory_(memory),
      counters_(counters),
      read_by_device_(queue_pair->window().slots),
      writes_before_(queue_pair->window().sends + kRdmaReturnBuffers) {
  const uint32_t sends = queue_pair->window().sends;
  for (uint32_t i = 0; i < sends; ++i) free_sends_.push_back(i);
  for (uint32_t i = 0; i < kRdmaReturnBuffers; ++i) free_returns_.push_back(sends + i);
}

void SendWindow::Push(OutgoingFrame frame) {
  auto entry = std::make_unique<Entry>(&frame, next_sequence_++);
  const bool has_data = WaitingFrame::HasData(frame.header);
  entry->by_send = entry->payload_bytes == 0 ||
                   (!has_data && entry->payload_bytes <= kRdmaSendBytes - kFrameHeaderBytes);
  entry->GatherPayload();
  EncodeFrameHeader(frame.header, entry->header.data());
  waiting_bytes_ += kFrameHeaderBytes + entry->piece_bytes;
  waiting_.insert(std::move(entry));
}

bool SendWindow::HasSlot() const {
  const uint32_t slots = queue_pair_->window().slots;
  return slots_out_ < slots && writes_ - writes_done_ < slots;
}

const SendWindow::Entry& SendWindow::Next() const { return **NextToLeave(waiting_, begun_); }

std::unique_ptr<SendWindow::Entry> SendWindow::TakeNext() {
  std::unique_ptr<Entry> entry = std::move(waiting_.extract(NextToLeave(waiting_, begun_)).value());
  waiting_bytes_ -= kFrameHeaderBytes + entry->piece_bytes;
  if (entry->has_begun()) --begun_;
  return entry;
}

void SendWindow::BeginNextPiece(std::unique_ptr<Entry> entry) {
  EncodeFrameHeader(entry->BeginNextPiece(), entry->header.data());
  entry->copied = 0;
  waiting_bytes_ += kFrameHeaderBytes + entry->piece_bytes;
  ++begun_;
  waiting_.insert(std::move(entry));
}

bool SendWindow::IsEmpty() const {
  return waiting_.empty() && (leaving_ == nullptr || leaving_->has_left());
}

bool SendWindow::HoldsBack() const {
  const RdmaWindow& window = queue_pair_->window();
  if (ReturnIsDue() && free_returns_.empty()) return true;
  if (IsEmpty()) return false;
  const bool by_send = leaving_ == nullptr && Next().by_send;
  return by_send ? free_sends_.empty() && sends_out_ < window.sends
                 : writes_ - writes_done_ == window.slots && slots_out_ < window.slots;
}

Status SendWindow::Pump(std::vector<std::shared_ptr<const void>>* finished) {
  BYTEPS_RETURN_IF_ERROR(Fill(finished));
  return Announce();
}

Status SendWindow::Fill(std::vector<std::shared_ptr<const void>>* finished) {
  while (true) {
    if (leaving_ == nullptr) {
      if (waiting_.empty()) return OkStatus();
      // In order: nothing of lower rank leaves while the first one waits for room.
      if (Next().by_send ? free_sends_.empty() || sends_out_ == queue_pair_->window().sends
                         : !HasSlot())
        return OkStatus();
      leaving_ = TakeNext();
    } else if (!HasSlot()) {
      return OkStatus();
    }
    BYTEPS_RETURN_IF_ERROR(leaving_->by_send ? SendFrame(*leaving_) : WriteSlot(leaving_.get()));
    if (!leaving_->by_send && leaving_->copied < leaving_->piece_bytes) continue;
    if (!leaving_->is_last_piece()) {
      BeginNextPiece(std::move(leaving_));
      continue;
    }
    ++counters_->frames_sent;
    counters_->payload_bytes_sent += leaving_->payload_bytes;
    counters_->rdma_bytes_sent += leaving_->payload_bytes;
    finished->push_back(std::move(leaving_->keep_alive));
    leaving_.reset();
  }
}

Status SendWindow::Announce() {
  if (unannounced_ == 0) return OkStatus();
  unannounced_ = 0;
  SlotMessage message;
  message.slot = static_cast<uint16_t>((writes_ - 1) % queue_pair_->window().slots);
  message.returned = static_cast<uint16_t>(slots_to_return_);
  slots_to_return_ = 0;
  // Before they can be done: no owner of a payload waits for the next frame.
  if (owners_ > 0 && IsEmpty()) BYTEPS_RETURN_IF_ERROR(queue_pair_->ArmSent());
  return queue_pair_->Announce(message.Encode());
}

Status SendWindow::SendFrame(const Entry& entry) {
  const uint32_t buffer = free_sends_.back();
  free_sends_.pop_back();
  ++sends_out_;
  uint8_t* const to = queue_pair_->buffer_to_send(buffer);
  std::memcpy(to, entry.header.data(), kFrameHeaderBytes);
  if (entry.payload_bytes > 0)
    std::memcpy(to + kFrameHeaderBytes, entry.payload, entry.payload_bytes);
  counters_->bytes_copied += entry.payload_bytes;
  const auto bytes = static_cast<uint32_t>(kFrameHeaderBytes + entry.payload_bytes);
  counters_->wire_bytes_sent += bytes;
  return PostBuffer(buffer, bytes);
}

Status SendWindow::PostBuffer(uint32_t buffer, uint32_t bytes) {
  BYTEPS_RETURN_IF_ERROR(Announce());  // what was to be there earlier
  writes_before_[buffer] = writes_;
  return queue_pair_->Send(buffer, bytes);
}

Status SendWindow::WriteSlot(Entry* entry) {
  const uint32_t slots = queue_pair_->window().slots;
  const auto slot = static_cast<uint32_t>(writes_++ % slots);
  ++slots_out_;
  uint8_t* const to = queue_pair_->slot_to_write(slot);
  QueuePair::Bytes range;
  range.begin = entry->copied > 0 ? kFrameHeaderBytes : 0;
  if (entry->copied == 0) std::memcpy(to, entry->header.data(), kFrameHeaderBytes);
  const auto bytes = static_cast<uint32_t>(std::min<uint64_t>(
      queue_pair_->window().slot_payload_bytes, entry->piece_bytes - entry->copied));
  const uint8_t* const payload = entry->payload + entry->begin + entry->copied;
  entry->copied += bytes;
  range.end = static_cast<uint32_t>(kFrameHeaderBytes + bytes);
  counters_->wire_bytes_sent += range.end - range.begin;
  if (memory_->Find(queue_pair_->device(), payload, bytes, &range.payload_key)) {
    read_by_device_[slot] = entry->keep_alive;
    if (entry->keep_alive != nullptr) ++owners_;
    range.payload = payload;
  } else {
    std::memcpy(to + kFrameHeaderBytes, payload, bytes);
    counters_->bytes_copied += bytes;
  }
  queue_pair_->Write(slot, range);
  // Where the ring is short the peer has to hear of a slot before it is full.
  const uint32_t at_once = std::clamp(slots / 4, 1u, kRdmaWritesAtOnce);
  return ++unannounced_ < at_once ? OkStatus() : Announce();
}

void SendWindow::FinishWrites(uint64_t count, std::vector<std::shared_ptr<const void>>* finished) {
  for (; writes_done_ < count; ++writes_done_) {
    auto& owner = read_by_device_[writes_done_ % read_by_device_.size()];
    if (owner == nullptr) continue;
    finished->push_back(std::move(owner));
    --owners_;
  }
}

void SendWindow::OnWritten(uint32_t index, std::vector<std::shared_ptr<const void>>* finished) {
  const uint32_t slots = queue_pair_->window().slots;
  const auto newest = static_cast<uint32_t>((writes_ - 1) % slots);
  FinishWrites(writes_ - (newest + slots - index) % slots, finished);
}

void SendWindow::OnSent(uint32_t index, std::vector<std::shared_ptr<const void>>* finished) {
  FinishWrites(writes_before_[index], finished);
  const bool is_return = index >= queue_pair_->window().sends;
  (is_return ? free_returns_ : free_sends_).push_back(index);
}

Status SendWindow::OnReturned(uint64_t slots, uint64_t sends) {
  if (slots + sends == 0 || slots > slots_out_ || sends > sends_out_)
    return InvalidArgument("the peer gives back more room than was taken");
  slots_out_ -= static_cast<uint32_t>(slots);
  sends_out_ -= static_cast<uint32_t>(sends);
  return OkStatus();
}

void SendWindow::Return(uint32_t slots, uint32_t sends) {
  slots_to_return_ += slots;
  sends_to_return_ += sends;
}

bool SendWindow::ReturnIsDue() const {
  const RdmaWindow& window = queue_pair_->window();
  return slots_to_return_ >= std::max(1u, window.slots / 2) ||
         sends_to_return_ >= std::max(1u, window.sends / 2);
}

Status SendWindow::FlushReturns() {
  return ReturnIsDue() && !free_returns_.empty() ? PostReturn() : OkStatus();
}

Status SendWindow::Greet() { return PostReturn(); }

Status SendWindow::PostReturn() {
  const uint32_t buffer = free_returns_.back();
  free_returns_.pop_back();
  FrameHeader header;
  header.type = FrameType::kRoomReturned;
  header.element_count = slots_to_return_;
  header.row_count = sends_to_return_;
  slots_to_return_ = 0;
  sends_to_return_ = 0;
  EncodeFrameHeader(header, queue_pair_->buffer_to_send(buffer));
  counters_->wire_bytes_sent += kFrameHeaderBytes;
  return PostBuffer(buffer, kFrameHeaderBytes);
}

uint64_t SendWindow::Revoke(const void* owner, std::vector<std::shared_ptr<const void>>* dropped) {
  return RevokeFrom(
      &waiting_, owner,
      [this](const Entry& entry) { waiting_bytes_ -= kFrameHeaderBytes + entry.piece_bytes; },
      dropped);
}

void SendWindow::Clear(std::vector<std::shared_ptr<const void>>* dropped) {
  for (const auto& entry : waiting_) dropped->push_back(std::move(entry->keep_alive));
  if (leaving_ != nullptr) dropped->push_back(std::move(leaving_->keep_alive));
  for (auto& owner : read_by_device_) dropped->push_back(std::move(owner));
  owners_ = 0;
  waiting_.clear();
  begun_ = 0;
  leaving_.reset();
}

}  // namespace byteps

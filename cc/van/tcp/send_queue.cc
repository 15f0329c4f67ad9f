#include <sys/uio.h>

#include <algorithm>

#include "cc/van/tcp/tcp_connection.h"

namespace byteps {
namespace {

// Small frames leave in one call up to this size; what has been gathered can no longer be
// overtaken.
constexpr uint64_t kGatherBytes = 64 * 1024;
constexpr size_t kGatherFrames = 32;

// Smaller payloads go through the socket: copying them costs less than the peer's system call and
// its answer.
constexpr uint64_t kLeastBytesInMemory = 16 * 1024;

// At once, while others wait.
constexpr uint64_t kWriteBudget = 4 * 1024 * 1024;

// What the peer may read before it has told of some: as little as keeps it busy, because nothing
// overtakes it any more (protocol rule 14).
constexpr uint64_t kMostBytesInPeersHands = 8 * 1024 * 1024;

}  // namespace

void SendQueue::Push(OutgoingFrame frame) {
  auto entry = std::make_unique<Entry>(&frame, next_sequence_++);
  const bool has_data = WaitingFrame::HasData(frame.header);
  entry->in_memory = in_memory_ && entry->payload_bytes >= kLeastBytesInMemory;
  if (entry->in_memory) {
    frame.header.place = PayloadPlace::kSenderMemory;
    frame.header.payload_address = reinterpret_cast<uint64_t>(frame.payload);
  } else {
    entry->piece_bytes = std::min(entry->payload_bytes, kPieceBytes);
  }
  entry->is_vans_own = !has_data && frame.header.type >= FrameType::kMemoryReadable;
  waiting_bytes_ += entry->stream_bytes();
  EncodeFrameHeader(frame.header, entry->header.data());
  waiting_.insert(std::move(entry));
}

bool SendQueue::MayLeave(const Entry& entry) const {
  return !entry.in_memory || bytes_in_peers_hands_ == 0 ||
         bytes_in_peers_hands_ + entry.payload_bytes <= kMostBytesInPeersHands;
}

// The most urgent one; where that would begin a frame too many, the one that began last, which is
// the most urgent of those that have begun.
SendQueue::Waiting::const_iterator SendQueue::Next() const {
  const auto first = waiting_.begin();
  if (begun_ < kMaxBegunFrames - 1 || (*first)->begin > 0 || !(*first)->is_long()) return first;
  return std::find_if(first, waiting_.end(), [](const auto& entry) { return entry->begin > 0; });
}

void SendQueue::Gather() {
  uint64_t bytes = 0;
  for (const auto& entry : leaving_) bytes += entry->stream_bytes() - entry->sent;
  while (!waiting_.empty() && leaving_.size() < kGatherFrames &&
         (leaving_.empty() || bytes < kGatherBytes)) {
    // Behind a piece comes what is then the most urgent: perhaps the next piece.
    if (!leaving_.empty() && !leaving_.back()->is_last_piece()) return;
    const auto next = Next();
    if (!MayLeave(**next)) return;
    std::unique_ptr<Entry> entry = std::move(waiting_.extract(next).value());
    bytes += entry->stream_bytes();
    waiting_bytes_ -= entry->stream_bytes();
    if (entry->begin > 0) --begun_;
    if (entry->in_memory) bytes_in_peers_hands_ += entry->payload_bytes;
    leaving_.push_back(std::move(entry));
  }
}

void SendQueue::BeginNextPiece(std::unique_ptr<Entry> entry) {
  entry->begin += entry->piece_bytes;
  entry->piece_bytes = std::min(entry->payload_bytes - entry->begin, kPieceBytes);
  entry->sent = 0;
  FrameHeader more;
  more.type = FrameType::kMore;
  more.payload_bytes = entry->piece_bytes;
  EncodeFrameHeader(more, entry->header.data());
  waiting_bytes_ += entry->stream_bytes();
  ++begun_;
  waiting_.insert(std::move(entry));
}

Status SendQueue::Write(Stream* stream, const std::string& peer, AtomicVanCounters* counters,
                        std::vector<std::shared_ptr<const void>>* finished) {
  has_had_its_turn_ = false;
  uint64_t written = 0;
  while (true) {
    Gather();
    if (leaving_.empty()) return OkStatus();
    if (written >= kWriteBudget) {
      has_had_its_turn_ = true;
      return OkStatus();
    }
    iovec pieces[2 * kGatherFrames];
    size_t count = 0;
    for (const auto& entry : leaving_) {
      if (entry->sent < kFrameHeaderBytes) {
        pieces[count++] = {entry->header.data() + entry->sent, kFrameHeaderBytes - entry->sent};
      }
      const uint64_t from = std::max<uint64_t>(entry->sent, kFrameHeaderBytes);
      if (entry->stream_bytes() > from) {
        const uint8_t* const piece = entry->payload + entry->begin;
        pieces[count++] = {const_cast<uint8_t*>(piece) + (from - kFrameHeaderBytes),
                           static_cast<size_t>(entry->stream_bytes() - from)};
      }
    }
    size_t left = 0;
    BYTEPS_RETURN_IF_ERROR(stream->Send(peer, pieces, count, &left));
    if (left == 0) return OkStatus();
    has_moved_ = true;
    written += left;
    while (!leaving_.empty()) {
      Entry& entry = *leaving_.front();
      const uint64_t rest = entry.stream_bytes() - entry.sent;
      if (left < rest) {
        entry.sent += left;
        break;
      }
      left -= rest;
      std::unique_ptr<Entry> left_whole = std::move(leaving_.front());
      leaving_.pop_front();
      if (left_whole->is_last_piece()) {
        Finish(std::move(left_whole), counters, finished);
      } else {
        BeginNextPiece(std::move(left_whole));
      }
    }
  }
}

void SendQueue::Finish(std::unique_ptr<Entry> entry, AtomicVanCounters* counters,
                       std::vector<std::shared_ptr<const void>>* finished) {
  if (!entry->is_vans_own) ++counters->frames_sent;
  counters->payload_bytes_sent += entry->payload_bytes;
  if (entry->in_memory) {
    in_peers_hands_.emplace_back(entry->payload_bytes, std::move(entry->keep_alive));
  } else {
    finished->push_back(std::move(entry->keep_alive));
  }
}

bool SendQueue::Release(uint64_t count, std::vector<std::shared_ptr<const void>>* finished) {
  if (count > in_peers_hands_.size()) return false;
  for (; count > 0; --count) {
    bytes_in_peers_hands_ -= in_peers_hands_.front().first;
    finished->push_back(std::move(in_peers_hands_.front().second));
    in_peers_hands_.pop_front();
  }
  return true;
}

uint64_t SendQueue::Revoke(const void* owner, std::vector<std::shared_ptr<const void>>* dropped) {
  return RevokeFrom(
      &waiting_, owner, [](const Entry& entry) { return entry.begin == 0; },
      [this](const Entry& entry) { waiting_bytes_ -= entry.stream_bytes(); }, dropped);
}

void SendQueue::Clear(std::vector<std::shared_ptr<const void>>* dropped) {
  for (const auto& entry : waiting_) dropped->push_back(std::move(entry->keep_alive));
  for (const auto& entry : leaving_) dropped->push_back(std::move(entry->keep_alive));
  for (auto& [bytes, keep_alive] : in_peers_hands_) dropped->push_back(std::move(keep_alive));
  waiting_.clear();
  begun_ = 0;
  leaving_.clear();
  in_peers_hands_.clear();
}

}  // namespace byteps

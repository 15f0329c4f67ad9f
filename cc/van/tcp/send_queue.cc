#include <sys/uio.h>

#include <algorithm>

#include "cc/van/tcp/tcp_connection.h"

namespace byteps {
namespace {

// Small frames leave in one call up to this size; what has been gathered can no longer be
// overtaken.
constexpr uint64_t kGatherBytes = 64 * 1024;
constexpr size_t kGatherFrames = 32;
// In which the bytes of one call may lie: two of each frame, and more of one that is scattered.
constexpr size_t kMostPlaces = 4 * kGatherFrames;

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
  entry->in_memory = in_memory_ && has_data && entry->payload_bytes >= kLeastBytesInMemory;
  if (entry->in_memory) {
    entry->GatherPayload();
    entry->SetMostPieceBytes(MostPieceBytes(PayloadLocation::kSenderMemory));
  }
  entry->is_vans_own = !has_data && frame.header.type >= FrameType::kMemoryReadable;
  waiting_bytes_ += entry->stream_bytes();
  entry->EncodeHeader(frame.header);
  waiting_.insert(std::move(entry));
}

// That of the piece that is next.
void SendQueue::Entry::EncodeHeader(FrameHeader of_piece) {
  if (in_memory) {
    of_piece.place = PayloadLocation::kSenderMemory;
    of_piece.payload_address = reinterpret_cast<uint64_t>(payload + begin);
  }
  EncodeFrameHeader(of_piece, header.data());
}

// Where the bytes are that the socket has to take next, in `most` places at most, of which there
// are two at least. Returns in how many.
size_t SendQueue::Entry::Describe(iovec* pieces, size_t most) {
  size_t count = 0;
  if (sent < kFrameHeaderBytes) pieces[count++] = {header.data() + sent, kFrameHeaderBytes - sent};
  uint64_t from = std::max<uint64_t>(sent, kFrameHeaderBytes);
  if (scattered != nullptr && from < stream_bytes())
    place.At(*scattered, begin + from - kFrameHeaderBytes);
  ScatteredPlace ahead = place;  // the socket may take less
  while (from < stream_bytes() && count < most) {
    const uint64_t offset = begin + from - kFrameHeaderBytes;
    const ScatteredPayload::Piece piece =
        scattered != nullptr ? ahead.At(*scattered, offset)
                             : ScatteredPayload::Piece{payload + offset, stream_bytes() - from};
    const uint64_t bytes = std::min(piece.bytes, stream_bytes() - from);
    pieces[count++] = {const_cast<uint8_t*>(piece.data), static_cast<size_t>(bytes)};
    from += bytes;
  }
  return count;
}

bool SendQueue::MayLeave(const Entry& entry) const {
  return !entry.in_memory || bytes_in_peers_hands_ == 0 ||
         bytes_in_peers_hands_ + entry.piece_bytes <= kMostBytesInPeersHands;
}

void SendQueue::Gather() {
  uint64_t bytes = 0;
  for (const auto& entry : leaving_) bytes += entry->stream_bytes() - entry->sent;
  while (!waiting_.empty() && leaving_.size() < kGatherFrames &&
         (leaving_.empty() || bytes < kGatherBytes)) {
    // Behind a piece comes what is then the most urgent: perhaps the next piece.
    if (!leaving_.empty() && !leaving_.back()->is_last_piece()) return;
    const auto next = NextToLeave(waiting_, begun_);
    if (!MayLeave(**next)) return;
    std::unique_ptr<Entry> entry = std::move(waiting_.extract(next).value());
    bytes += entry->stream_bytes();
    waiting_bytes_ -= entry->stream_bytes();
    if (entry->has_begun()) --begun_;
    if (entry->in_memory) bytes_in_peers_hands_ += entry->piece_bytes;
    leaving_.push_back(std::move(entry));
  }
}

void SendQueue::BeginNextPiece(std::unique_ptr<Entry> entry) {
  if (entry->in_memory) in_peers_hands_.emplace_back(entry->piece_bytes, nullptr);
  entry->EncodeHeader(entry->BeginNextPiece());
  entry->sent = 0;
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
    iovec pieces[kMostPlaces];
    size_t count = 0;
    for (const auto& entry : leaving_) {
      // Behind one that is not described to its end comes none.
      if (count + 2 > kMostPlaces) break;
      count += entry->Describe(pieces + count, kMostPlaces - count);
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
    in_peers_hands_.emplace_back(entry->piece_bytes, std::move(entry->keep_alive));
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
      &waiting_, owner, [this](const Entry& entry) { waiting_bytes_ -= entry.stream_bytes(); },
      dropped);
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

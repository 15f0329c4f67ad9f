// WaitingFrame: what every queue of outgoing frames keeps for each, and the order in which they
// leave (Connection::Send).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "cc/van/van.h"

namespace byteps {

struct WaitingFrame {
  // All but the header, which may have to be changed before it is encoded.
  WaitingFrame(OutgoingFrame* frame, uint64_t sequence)
      : rank(RankOf(*frame)),
        sequence(sequence),
        payload(static_cast<const uint8_t*>(frame->payload)),
        scattered(frame->scattered),
        payload_bytes(frame->header.payload_bytes),
        piece_bytes(std::min(payload_bytes, kPieceBytes)),
        keep_alive(std::move(frame->keep_alive)),
        owner(frame->owner) {}

  // Those that have a priority.
  static bool HasData(const FrameHeader& header) {
    return header.type == FrameType::kPush || header.type == FrameType::kReply;
  }

  static int64_t RankOf(const OutgoingFrame& frame) {
    constexpr int64_t kFirst = std::numeric_limits<int64_t>::min();
    if (frame.is_sign_of_life) return kFirst;
    return HasData(frame.header) ? -int64_t{frame.header.priority} : kFirst + 1;
  }

  bool has_begun() const { return begin > 0; }
  bool is_long() const { return payload_bytes > most_piece_bytes; }
  bool is_last_piece() const { return begin + piece_bytes == payload_bytes; }
  // Before any of it has left.
  void SetMostPieceBytes(uint64_t bytes) {
    most_piece_bytes = bytes;
    piece_bytes = std::min(payload_bytes, bytes);
  }
  // Goes on to the next piece, and returns its header.
  FrameHeader BeginNextPiece() {
    begin += piece_bytes;
    piece_bytes = std::min(payload_bytes - begin, most_piece_bytes);
    FrameHeader more;
    more.type = FrameType::kMore;
    more.payload_bytes = piece_bytes;
    return more;
  }

  int64_t rank;  // lower leaves earlier
  uint64_t sequence;
  std::array<uint8_t, kFrameHeaderBytes> header;
  // It is copied to one place, for those who need that.
  void GatherPayload() {
    if (scattered != nullptr) payload = scattered->Whole();
    scattered = nullptr;
  }

  const uint8_t* payload;
  const ScatteredPayload* scattered;  // not null: instead of the above
  uint64_t payload_bytes;
  // The piece that is next, or leaving: a header, and so much of the payload, from `begin` on.
  uint64_t begin = 0;
  uint64_t piece_bytes;
  uint64_t most_piece_bytes = kPieceBytes;
  std::shared_ptr<const void> keep_alive;
  const void* owner;
};

// For a std::set of pointers to them.
struct LeavesEarlier {
  template <typename Pointer>
  bool operator()(const Pointer& a, const Pointer& b) const {
    return a->rank != b->rank ? a->rank < b->rank : a->sequence < b->sequence;
  }
};

// Of a set of pointers to them, which is not empty and `begun` of which have begun, the most urgent
// one; where that would begin a frame too many, the one that began last, which is the most urgent
// of those that have begun.
template <typename Waiting>
typename Waiting::const_iterator NextToLeave(const Waiting& waiting, size_t begun) {
  const auto first = waiting.begin();
  if (begun < kMaxBegunFrames - 1 || (*first)->has_begun() || !(*first)->is_long()) return first;
  return std::find_if(first, waiting.end(), [](const auto& entry) { return entry->has_begun(); });
}

// Connection::Revoke, of a set of pointers to them. `on_drop` hears of each that goes.
template <typename Waiting, typename OnDrop>
uint64_t RevokeFrom(Waiting* waiting, const void* owner, OnDrop on_drop,
                    std::vector<std::shared_ptr<const void>>* dropped) {
  uint64_t bytes = 0;
  for (auto each = waiting->begin(); each != waiting->end();) {
    auto& entry = **each;
    if (entry.owner != owner || entry.has_begun()) {
      ++each;
      continue;
    }
    on_drop(entry);
    bytes += entry.payload_bytes;
    dropped->push_back(std::move(entry.keep_alive));
    each = waiting->erase(each);
  }
  return bytes;
}

}  // namespace byteps

#include "cc/van/incoming_frames.h"

#include <algorithm>
#include <utility>

namespace byteps {

Status IncomingFrames::Begin(const std::string& peer, const FrameHeader& header) {
  if (frames_.size() >= kMaxBegunFrames)
    return InvalidArgument(peer + " begins one frame after the other and ends none");
  frames_.push_back({header, nullptr, header.payload_bytes});
  piece_left_ = std::min(header.payload_bytes, MostPieceBytes(header.place));
  return OkStatus();
}

Status IncomingFrames::GoOn(const std::string& peer, const FrameHeader& header) {
  if (frames_.empty() || header.payload_bytes == 0 ||
      header.payload_bytes != std::min(last().payload_left, MostPieceBytes(header.place)))
    return InvalidArgument(peer + " sent a piece that belongs to no frame");
  if (header.place != last().header.place)
    return InvalidArgument(peer + " left a part of a payload somewhere else");
  piece_left_ = header.payload_bytes;
  return OkStatus();
}

void IncomingFrames::Advance(uint64_t bytes) {
  last().payload_left -= bytes;
  piece_left_ -= bytes;
}

IncomingFrames::Frame IncomingFrames::TakeLast() {
  Frame ended = std::move(last());
  frames_.pop_back();
  return ended;
}

void IncomingFrames::Clear() {
  frames_.clear();
  piece_left_ = 0;
}

}  // namespace byteps

// IncomingFrames: the frames of a connection that have begun to arrive and not ended. The one that
// began last goes on (kPieceBytes in wire/frame.h). What the bytes come by, a socket or RDMA, is
// the caller's matter.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/van/van.h"
#include "cc/wire/frame.h"

namespace byteps {

// Not thread-safe.
class IncomingFrames {
 public:
  struct Frame {
    FrameHeader header;
    std::shared_ptr<PayloadSink> sink;  // null: the payload is read and dropped
    uint64_t payload_left = 0;
  };

  // A frame begins, with its first piece. INVALID_ARGUMENT, which names the peer, if so many have
  // begun that no correct peer does it.
  Status Begin(const std::string& peer, const FrameHeader& header);
  // The next piece of the last frame begins: a header of type kMore. INVALID_ARGUMENT if it is not
  // that.
  Status GoOn(const std::string& peer, const FrameHeader& header);

  // The one that began last; there must be one.
  Frame& last() { return frames_.back(); }
  // Of its payload, until the end of the piece: a header follows at 0.
  uint64_t piece_left() const { return piece_left_; }
  // So much of the piece has come.
  void Advance(uint64_t bytes);

  // The last one has ended.
  Frame TakeLast();
  void Clear();

 private:
  std::vector<Frame> frames_;
  uint64_t piece_left_ = 0;
};

}  // namespace byteps

// OutgoingFrame: a frame to be sent, as those who decide it hand it on.
#pragma once

#include <memory>

#include "cc/wire/frame.h"

namespace byteps {

class ScatteredPayload;  // van/scattered_payload.h

// The Van reads the payload until it has been handed to the network, then drops `keep_alive`.
struct OutgoingFrame {
  FrameHeader header;
  const void* payload = nullptr;                // header.payload_bytes bytes
  const ScatteredPayload* scattered = nullptr;  // set: the payload, instead of the above
  std::shared_ptr<const void> keep_alive;
  const void* owner = nullptr;   // compared only: who may revoke it
  bool is_sign_of_life = false;  // a heartbeat: leaves before all that waits
};

}  // namespace byteps

// ControlFrame: a control message as a frame that can be sent.
#pragma once

#include "cc/wire/control.h"
#include "cc/wire/outgoing_frame.h"

namespace byteps {

// Encodes `message` once, for all who get it: copies of the frame share its bytes. It goes as it is
// if it is no longer than kMaxControlBytes.
OutgoingFrame ControlFrame(const ControlMessage& message);

}  // namespace byteps

#include "cc/wire/control_frame.h"

#include <memory>
#include <string>
#include <utility>

namespace byteps {

OutgoingFrame ControlFrame(const ControlMessage& message) {
  auto bytes = std::make_shared<const std::string>(EncodeControl(message));
  OutgoingFrame frame;
  frame.header.type = FrameType::kControl;
  frame.header.payload_bytes = bytes->size();
  frame.payload = bytes->data();
  frame.keep_alive = std::move(bytes);
  return frame;
}

}  // namespace byteps

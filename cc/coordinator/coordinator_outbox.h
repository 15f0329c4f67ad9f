// For the files that implement Coordinator.
#ifndef TF_BYTEPS_CC_COORDINATOR_COORDINATOR_OUTBOX_H_
#define TF_BYTEPS_CC_COORDINATOR_COORDINATOR_OUTBOX_H_

#include <memory>
#include <utility>
#include <vector>

#include "cc/coordinator/coordinator.h"
#include "cc/wire/control_frame.h"

namespace byteps {

// Sends at the end of what has to be done, with the mutex held: what several threads have to say
// reaches all in one order, and nobody hears that a job has ended before he hears why. To send may
// be to write to a socket, but never to wait for it.
struct Coordinator::Outbox {
  struct Sent {
    std::shared_ptr<ControlSession> to;
    OutgoingFrame frame;
    bool is_heartbeat;
  };
  std::vector<Sent> messages;

  // Those who have not come yet learn what there is to know when they come.
  void Add(const Peer& to, const OutgoingFrame& frame, bool is_heartbeat = false) {
    if (to.presence != Presence::kExpected) messages.push_back({to.session, frame, is_heartbeat});
  }
  void Add(const Peer& to, const ControlMessage& message) {
    if (to.presence != Presence::kExpected) Add(to, ControlFrame(message));
  }
  ~Outbox() {
    for (Sent& sent : messages) sent.to->SendFrame(std::move(sent.frame), sent.is_heartbeat);
  }
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_COORDINATOR_COORDINATOR_OUTBOX_H_

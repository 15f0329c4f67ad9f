// For the files that implement Coordinator.
#ifndef TF_BYTEPS_CC_COORDINATOR_COORDINATOR_OUTBOX_H_
#define TF_BYTEPS_CC_COORDINATOR_COORDINATOR_OUTBOX_H_

#include <memory>
#include <utility>
#include <vector>

#include "cc/coordinator/coordinator.h"

namespace byteps {

// Messages are collected under the mutex and sent without it: Send may write to a socket.
struct Coordinator::Outbox {
  std::vector<std::pair<std::shared_ptr<ControlSession>, ControlMessage>> messages;

  // Those who have not come yet learn what there is to know when they come.
  void Add(const Peer& to, ControlMessage message) {
    if (to.presence != Presence::kExpected) messages.emplace_back(to.session, std::move(message));
  }
  ~Outbox() {
    for (const auto& [session, message] : messages) session->Send(message);
  }
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_COORDINATOR_COORDINATOR_OUTBOX_H_

// WorkerFailover: how far a worker is with parts that get other owners, because a server is lost or
// has been started again (protocol rule 15). It decides from what it is told: no lock, no
// connection, no clock.
// Another server that is lost, or comes back, meanwhile has it begin anew, with a new version.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "cc/base/status.h"
#include "cc/base/transition.h"
#include "cc/wire/control.h"
#include "cc/worker/state/part_id.h"

namespace byteps {

// Not thread-safe.
class WorkerFailover {
 public:
  enum class State {
    kNormal,
    kDraining,  // what of these parts is arriving ends before this worker says how far it is
    kMoving,    // it has said so, and waits for the new owners
  };

  // "drained": the last connection to a lost server has closed, and the last reply about a part
  // that moves is in. Then PartProgress is due. docs/states.md draws this.
  static constexpr Transition<State> kTransitions[] = {
      {State::kNormal, "ServerLost", State::kDraining},
      {State::kNormal, "ServerRejoined", State::kDraining},
      {State::kDraining, "ServerLost", State::kDraining},
      {State::kDraining, "ServerRejoined", State::kDraining},
      {State::kDraining, "drained", State::kMoving},
      {State::kMoving, "ServerLost", State::kDraining},
      {State::kMoving, "ServerRejoined", State::kDraining},
      {State::kMoving, "PartsMoved", State::kNormal},
  };

  State state() const { return state_; }

  void Begin(const ServerLost& lost);
  // The parts move from servers that live.
  void Begin(const ServerRejoined& back);

  // Of a server that lives, and to another one: nothing of it is sent or accepted.
  bool IsMoving(const PartId& part) const { return !moving_.empty() && moving_.count(part) > 0; }

  // Whether somebody has to be told once nothing arrives any more.
  bool is_draining() const { return state_ == State::kDraining; }
  // Nothing arrives any more. Returns the version of the PartProgress that is due; none, if this
  // worker is not draining.
  std::optional<uint32_t> EndDraining();

  // The parts have their new owners. INTERNAL if they cannot have.
  Status End(const PartsMoved& moved);

 private:
  void Begin(uint32_t version);

  State state_ = State::kNormal;
  uint32_t version_ = 0;     // of the placement that is to come, or has come
  std::set<PartId> moving_;  // from servers that live
};

}  // namespace byteps

// Stalls: workers wait for others, and ask who it is (stall_digest.h).
#pragma once

#include <cstdint>
#include <optional>

#include "cc/base/transition.h"
#include "cc/coordinator/state/effects.h"
#include "cc/coordinator/state/joins.h"
#include "cc/coordinator/state/peer_table.h"
#include "cc/coordinator/state/stall_digest.h"
#include "cc/wire/control.h"

namespace byteps {

// Not thread-safe.
class Stalls {
 public:
  enum class State {
    kNone,
    kCollecting,  // who else waits
    kAsked,       // all workers
  };

  // "collected": the time for that is over. "answered": all have, or had the time for it.
  // docs/states.md draws this.
  static constexpr Transition<State> kTransitions[] = {
      {State::kNone, "StallQuery", State::kCollecting},
      {State::kCollecting, "StallQuery", State::kCollecting},
      {State::kCollecting, "collected", State::kAsked},
      {State::kAsked, "StallQuery", State::kAsked},
      {State::kAsked, "answered", State::kNone},
  };

  // `joins` and `peers` outlive it.
  Stalls(int32_t num_workers, const Joins& joins, PeerTable* peers)
      : num_workers_(num_workers), joins_(joins), peers_(*peers) {}

  State state() const {
    if (!digest_.has_value()) return State::kNone;
    return digest_->was_asked() ? State::kAsked : State::kCollecting;
  }

  Status On(const StallQuery& query, const JobPeer& from, CoordinatorEffects* effects);
  Status On(const StallAnswer& answer, const JobPeer& from);
  // A moment has passed.
  void OnDeferred(CoordinatorEffects* effects);

 private:
  void Report(CoordinatorEffects* effects);

  const int32_t num_workers_;
  const Joins& joins_;
  PeerTable& peers_;
  std::optional<StallDigest> digest_;
  uint64_t next_id_ = 1;
};

}  // namespace byteps

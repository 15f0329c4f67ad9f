// Retuning: the sizes that the links make of a job (tuning.h) reach all who are in it. Tensors that
// are cut anew by that have a new variant from a round on that nobody has begun: all workers hold
// their rounds until they know which.
#pragma once

#include <cstdint>
#include <optional>

#include "cc/base/job.h"
#include "cc/base/transition.h"
#include "cc/coordinator/state/declarations.h"
#include "cc/coordinator/state/effects.h"
#include "cc/coordinator/state/failover.h"
#include "cc/coordinator/state/peer_table.h"
#include "cc/coordinator/state/table_updates.h"
#include "cc/coordinator/state/tensor_table.h"
#include "cc/coordinator/state/tuning.h"
#include "cc/wire/control.h"

namespace byteps {

// Not thread-safe.
class Retuning {
 public:
  enum class State {
    kMeasuring,
    kPausing,  // until all workers hold their rounds and all servers have the new cuts
    kTuned,    // or fixed by the options, from the beginning
  };

  // "sizes": the last LinkReport is in, and no tensor is cut anew; "cuts": some are. "all
  // hold": the last RoundProgress is in, and the last TableAck. docs/states.md draws this.
  static constexpr Transition<State> kTransitions[] = {
      {State::kMeasuring, "sizes", State::kTuned},
      {State::kMeasuring, "cuts", State::kPausing},
      {State::kPausing, "all paused", State::kTuned},
  };

  // All of them outlive it.
  Retuning(const JobDescription& job, const Failover& failover, PeerTable* peers,
           TableUpdates* updates, TensorTable* table, Declarations* declarations)
      : failover_(failover),
        peers_(*peers),
        updates_(*updates),
        table_(*table),
        declarations_(*declarations),
        tuning_(job) {}

  State state() const {
    if (retune_.has_value()) return State::kPausing;
    return tuning_.is_decided() ? State::kTuned : State::kMeasuring;
  }

  void On(const LinkReport& report, const JobPeer& from, CoordinatorEffects* effects);
  void On(const RoundProgress& progress, const JobPeer& from, CoordinatorEffects* effects);
  void OnDeparted(const JobPeer& worker, CoordinatorEffects* effects);
  // All servers have taken in more, or a failover has ended.
  void SendIfReady(CoordinatorEffects* effects);

  // What the servers have been told; 0: nothing.
  uint64_t unsent_bytes() const { return unsent_bytes_; }

 private:
  void Log(const TunedSizes& sizes, CoordinatorEffects* effects) const;
  void Begin(const TunedSizes& sizes, CoordinatorEffects* effects);

  const Failover& failover_;
  PeerTable& peers_;
  TableUpdates& updates_;
  TensorTable& table_;
  Declarations& declarations_;
  Tuning tuning_;
  std::optional<Retune> retune_;  // kPausing
  uint64_t needed_update_ = 0;    // what the servers must have taken in
  uint64_t unsent_bytes_ = 0;
};

}  // namespace byteps

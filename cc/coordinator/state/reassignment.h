// Reassignment: parts get other owners, because a server is lost while others remain or is started
// again (ServerLosses):
//
//   PartProgress, of all workers -> PartsMoved -> servers -> TableAck -> PartsMoved -> workers
//
// From Begin to the last of these nobody is told where tensors are. Another server that is lost
// meanwhile has it begin anew.
#pragma once

#include <cstdint>
#include <optional>

#include "cc/coordinator/state/declarations.h"
#include "cc/coordinator/state/effects.h"
#include "cc/coordinator/state/failover.h"
#include "cc/coordinator/state/peer_table.h"
#include "cc/coordinator/state/table_updates.h"
#include "cc/coordinator/state/tensor_table.h"
#include "cc/wire/control.h"

namespace byteps {

// Not thread-safe.
class Reassignment {
 public:
  // All of them outlive it.
  Reassignment(Failover* failover, PeerTable* peers, TableUpdates* updates, TensorTable* table,
               Declarations* declarations)
      : failover_(*failover),
        peers_(*peers),
        updates_(*updates),
        table_(*table),
        declarations_(*declarations) {}

  // Returns the version of the placement to come, which all workers are to be told.
  uint32_t Begin();
  bool is_running() const { return failover_.is_running(); }

  void On(const PartProgress& progress, const JobPeer& from, CoordinatorEffects* effects);
  void On(const ResultProgress& progress, const JobPeer& from, CoordinatorEffects* effects);
  void OnDeparted(const JobPeer& worker, CoordinatorEffects* effects);
  // The workers have said where they are, or there are none: finds new owners, and tells the
  // servers first.
  void MoveIfReady(CoordinatorEffects* effects);
  // All servers have taken in more. Whether that is the end of it.
  bool EndIfReady(CoordinatorEffects* effects);

 private:
  Failover& failover_;
  PeerTable& peers_;
  TableUpdates& updates_;
  TensorTable& table_;
  Declarations& declarations_;
  std::optional<PartsMoved> moved_;  // Failover::State::kMoving
};

}  // namespace byteps

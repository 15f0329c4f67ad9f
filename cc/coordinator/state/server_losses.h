// ServerLosses: servers that are lost while others remain, and that are started again. Their parts
// get other owners, which Reassignment decides:
//
//   ServerLost -> workers -> PartProgress -> Reassignment
//
// A server that is started again gets parts of the others in the same way. The parts that are to
// move are named first, and are to the workers as those of a lost server from then on:
//
//   Readmit -> it connects -> ServerRejoined -> workers -> PartProgress -> Reassignment
//
// It waits for the end of a failover that others cause. If it is lost meanwhile, its parts are
// those of a lost server.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/job.h"
#include "cc/coordinator/state/declarations.h"
#include "cc/coordinator/state/effects.h"
#include "cc/coordinator/state/job_phase.h"
#include "cc/coordinator/state/joins.h"
#include "cc/coordinator/state/peer_table.h"
#include "cc/coordinator/state/reassignment.h"
#include "cc/coordinator/state/retuning.h"
#include "cc/coordinator/state/table_updates.h"
#include "cc/coordinator/state/tensor_table.h"
#include "cc/wire/control.h"

namespace byteps {

// Not thread-safe.
class ServerLosses {
 public:
  // All of them outlive it.
  ServerLosses(JobDescription* job, const JobPhase& phase, PeerTable* peers, TableUpdates* updates,
               TensorTable* table, Declarations* declarations, const Retuning& retuning,
               Joins* joins, Reassignment* reassignment)
      : job_(*job),
        phase_(phase),
        peers_(*peers),
        updates_(*updates),
        table_(*table),
        declarations_(*declarations),
        retuning_(retuning),
        joins_(*joins),
        reassignment_(*reassignment) {}

  // Whether training goes on if `server` is lost now; then Lose does that.
  bool CanLose(const JobPeer& server);
  void Lose(JobPeer* server, const std::string& what, CoordinatorEffects* effects);

  // See Coordinator.
  std::vector<int32_t> LostServers();
  Status Readmit(int32_t rank, const Endpoint& endpoint, const std::string& host, int64_t now_ns);
  // What has been said before it came. It learns of tensors when it gets parts of them.
  void Greet(const JobPeer& server, CoordinatorEffects* effects);
  // Names the parts that are to move to the next server that has come again.
  void ReadmitIfReady(CoordinatorEffects* effects);

 private:
  bool MayReadmit() const { return phase_.is_running() && !peers_.any_worker_has_left(); }

  JobDescription& job_;
  const JobPhase& phase_;
  PeerTable& peers_;
  TableUpdates& updates_;
  TensorTable& table_;
  Declarations& declarations_;
  const Retuning& retuning_;
  Joins& joins_;
  Reassignment& reassignment_;
};

}  // namespace byteps

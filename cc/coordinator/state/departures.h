// Departures: processes that leave a job or are lost, and the end of the job by that.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cc/coordinator/state/effects.h"
#include "cc/coordinator/state/job_phase.h"
#include "cc/coordinator/state/joins.h"
#include "cc/coordinator/state/peer_table.h"
#include "cc/coordinator/state/reassignment.h"
#include "cc/coordinator/state/retuning.h"
#include "cc/coordinator/state/server_losses.h"

namespace byteps {

// Not thread-safe.
class Departures {
 public:
  // All of them outlive it.
  Departures(JobPhase* phase, PeerTable* peers, Joins* joins, Retuning* retuning,
             Reassignment* reassignment, ServerLosses* losses)
      : phase_(*phase),
        peers_(*peers),
        joins_(*joins),
        retuning_(*retuning),
        reassignment_(*reassignment),
        losses_(*losses) {}

  // It says goodbye.
  void Leave(JobPeer* peer, CoordinatorEffects* effects);
  // What has become of it, is for people.
  void Lose(JobPeer* peer, const std::string& what, CoordinatorEffects* effects);
  // Servers are told together of those who leave so shortly after each other. Only servers hear who
  // has left: a worker learns of it when it waits for the leaver.
  void OnDeferred(CoordinatorEffects* effects);

 private:
  void EndJobIfOver(CoordinatorEffects* effects);

  JobPhase& phase_;
  PeerTable& peers_;
  Joins& joins_;
  Retuning& retuning_;
  Reassignment& reassignment_;
  ServerLosses& losses_;
  std::vector<int32_t> have_left_;  // workers of which the servers have not been told
};

}  // namespace byteps

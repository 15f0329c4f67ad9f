// PeerMessages: what each message does at the coordinator; senders.h says who may send it.
#pragma once

#include "cc/base/job.h"
#include "cc/coordinator/state/declarations.h"
#include "cc/coordinator/state/departures.h"
#include "cc/coordinator/state/effects.h"
#include "cc/coordinator/state/joins.h"
#include "cc/coordinator/state/peer_table.h"
#include "cc/coordinator/state/reassignment.h"
#include "cc/coordinator/state/retuning.h"
#include "cc/coordinator/state/server_losses.h"
#include "cc/coordinator/state/stalls.h"
#include "cc/coordinator/state/table_updates.h"
#include "cc/wire/control.h"

namespace byteps {

// Not thread-safe.
class PeerMessages {
 public:
  // All of them outlive it.
  PeerMessages(const JobDescription& job, PeerTable* peers, TableUpdates* updates, Joins* joins,
               Declarations* declarations, Retuning* retuning, Reassignment* reassignment,
               ServerLosses* losses, Departures* departures, Stalls* stalls)
      : job_(job),
        peers_(*peers),
        updates_(*updates),
        joins_(*joins),
        declarations_(*declarations),
        retuning_(*retuning),
        reassignment_(*reassignment),
        losses_(*losses),
        departures_(*departures),
        stalls_(*stalls) {}

  // An error says why the message cannot be: then its connection ends.
  Status OnMessage(JobPeer* from, ControlMessage message, CoordinatorEffects* effects);

 private:
  using Effects = CoordinatorEffects;
  // The error is to go after the sender's name.
  Status On(const Heartbeat& beat, JobPeer* from, Effects* effects);
  Status On(const Reachable& at, JobPeer* from, Effects* effects);
  Status On(const DeclareRequest& request, JobPeer* from, Effects* effects);
  Status On(const TableAck& ack, JobPeer* from, Effects* effects);
  Status On(const Goodbye& goodbye, JobPeer* from, Effects* effects);
  Status On(const PeerLost& lost, JobPeer* from, Effects* effects);
  Status On(const LinkReport& report, JobPeer* from, Effects* effects);
  Status On(const RoundProgress& progress, JobPeer* from, Effects* effects);
  Status On(const PartProgress& progress, JobPeer* from, Effects* effects);
  Status On(const ResultProgress& progress, JobPeer* from, Effects* effects);
  Status On(const Joined& joined, JobPeer* from, Effects* effects);
  Status On(Relay& relay, JobPeer* from, Effects* effects);
  Status On(const StallQuery& query, JobPeer* from, Effects* effects);
  Status On(const StallAnswer& answer, JobPeer* from, Effects* effects);

  const JobDescription& job_;
  PeerTable& peers_;
  TableUpdates& updates_;
  Joins& joins_;
  Declarations& declarations_;
  Retuning& retuning_;
  Reassignment& reassignment_;
  ServerLosses& losses_;
  Departures& departures_;
  Stalls& stalls_;
};

}  // namespace byteps

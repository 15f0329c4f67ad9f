// CoordinatorState: what the coordinator of a job knows and decides. Something happens, which is a
// call of one of its rooms with a CoordinatorEffects, and that has afterwards what is to be done.
// No lock, thread, connection, clock or log; docs/states.md has the picture.
//
//   phase         running, failed, over, stopped
//   updates       what the servers have been told of the table, and have taken in
//   peers         the processes, how far each of them is, and what all are told
//   failover      how far the workers are with parts that get other owners
//   table         the tensors, their parts and owners
//   joins         workers that have no more data, until all have none
//   declarations  tensors that workers declare
//   retuning      sizes that follow the links
//   reassignment  parts that get other owners
//   losses        servers that are lost while others remain, or are started again
//   departures    processes that leave or are lost, the end of the job
//   stalls        workers that wait for others
//   connections   connections that are made and break, heartbeats, silence
//   messages      what workers and servers say
//
// Each knows only those above it.
#pragma once

#include <cstdint>

#include "cc/base/job.h"
#include "cc/base/seconds.h"
#include "cc/coordinator/state/connections.h"
#include "cc/coordinator/state/declarations.h"
#include "cc/coordinator/state/departures.h"
#include "cc/coordinator/state/effects.h"
#include "cc/coordinator/state/failover.h"
#include "cc/coordinator/state/job_phase.h"
#include "cc/coordinator/state/joins.h"
#include "cc/coordinator/state/messages.h"
#include "cc/coordinator/state/peer_table.h"
#include "cc/coordinator/state/reassignment.h"
#include "cc/coordinator/state/retuning.h"
#include "cc/coordinator/state/server_losses.h"
#include "cc/coordinator/state/stalls.h"
#include "cc/coordinator/state/table_updates.h"
#include "cc/coordinator/state/tensor_table.h"

namespace byteps {

// Not thread-safe.
struct CoordinatorState {
  // The job begins now.
  CoordinatorState(const JobDescription& of_job, const TimeoutOptions& timeouts, int64_t now_ns)
      : job(of_job),
        shutdown_timeout_ns(SecondsToNanos(timeouts.shutdown_timeout)),
        updates(job.num_servers()),
        peers(job, &updates, now_ns),
        failover(job.num_workers()),
        table(job),
        joins(job.num_workers(), &peers, &updates),
        declarations(failover, &peers, &updates, &table),
        retuning(job, failover, &peers, &updates, &table, &declarations),
        reassignment(&failover, &peers, &updates, &table, &declarations),
        losses(&job, phase, &peers, &updates, &table, &declarations, retuning, &joins,
               &reassignment),
        departures(&phase, &peers, &joins, &retuning, &reassignment, &losses),
        stalls(job.num_workers(), joins, &peers),
        connections(job, timeouts, phase, &peers, &losses, &departures),
        messages(job, &peers, &updates, &joins, &declarations, &retuning, &reassignment, &losses,
                 &departures, &stalls) {}
  CoordinatorState(const CoordinatorState&) = delete;
  CoordinatorState& operator=(const CoordinatorState&) = delete;

  // Whether nobody is to be waited for any more.
  bool IsFinished(int64_t now_ns) const {
    return phase.IsFinished(peers.connected(), shutdown_timeout_ns, now_ns);
  }
  // A moment has passed, after CoordinatorEffects::begins_deferred.
  void OnDeferred(CoordinatorEffects* effects) {
    departures.OnDeferred(effects);
    stalls.OnDeferred(effects);
  }

  JobDescription job;  // with the endpoints of servers that have been started again
  const int64_t shutdown_timeout_ns;
  JobPhase phase;
  TableUpdates updates;
  PeerTable peers;
  Failover failover;
  TensorTable table;
  Joins joins;
  Declarations declarations;
  Retuning retuning;
  Reassignment reassignment;
  ServerLosses losses;
  Departures departures;
  Stalls stalls;
  PeerConnections connections;
  PeerMessages messages;
};

}  // namespace byteps

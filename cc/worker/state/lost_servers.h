// LostServers: servers that are lost while others remain, and that are started again (protocol rule
// 15). How far this worker is with it is WorkerFailover's state; docs/states.md has the way of a
// loss, file by file.
//
// Nothing more is sent to a lost server, and what its connections were receiving has ended before
// this worker says how far it is (PathEvents::ReportIfDrained). From then on only the new owner of
// a part, which PartsMoved names, can bring its results (MovedParts).
//
// When a server is started again, parts of servers that live move to it in the same way
// (ServerRejoined). Their connections stay: what comes over them of such a part is dropped from
// then on, but for a reply that is arriving, which PartProgress waits for.
#pragma once

#include <cstdint>

#include "cc/base/job.h"
#include "cc/worker/state/effects.h"
#include "cc/worker/state/failover.h"
#include "cc/worker/state/key_table.h"
#include "cc/worker/state/path_events.h"
#include "cc/worker/state/paths.h"
#include "cc/worker/state/transmission.h"
#include "cc/worker/state/worker_counters.h"

namespace byteps {

// Not thread-safe.
class LostServers {
 public:
  // All of them outlive it.
  LostServers(const JobDescription& job, WorkerFailover* failover, KeyTable* keys,
              ServerLinks* servers, Transmission* transmission, PathEvents* path_events)
      : job_(job),
        failover_(failover),
        keys_(keys),
        servers_(servers),
        transmission_(transmission),
        path_events_(path_events) {}

  // What the coordinator says.
  void OnServerLost(const ServerLost& lost, Effects* effects);
  Status OnServerRejoined(const ServerRejoined& back, Effects* effects);

  void AddTo(StateCounters* counters) const;

 private:
  // To what is in flight of parts that leave servers which live.
  void ExpectNoAnswers(const ServerRejoined& back);

  const JobDescription& job_;
  WorkerFailover* const failover_;
  KeyTable* const keys_;
  ServerLinks* const servers_;
  Transmission* const transmission_;
  PathEvents* const path_events_;
  uint64_t lost_servers_ = 0;  // these: see StateCounters
  uint64_t returned_servers_ = 0;
};

}  // namespace byteps

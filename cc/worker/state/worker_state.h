// WorkerState: what a worker knows and decides. Something happens, which is a call of one of its
// rooms with an Effects, and that has afterwards what is to be done. No lock, thread, connection,
// clock or log; docs/states.md has the picture.
//
//   lifecycle     running, failed, stopped
//   failover      how far this worker is with parts that get other owners
//   servers       the paths to the servers, and what waits for one
//   keys          each tensor's descriptions, placement, next round and exchange in flight
//   transmission  parts: their order, the credit, the paths that they take
//   exchanges     tensors, from their beginning to their end
//   placement     declarations, parts and owners, new cuts
//   kept_results  results that others may lack
//   path_events   connections that are made, break, and are made again
//   lost_servers  servers that are lost or come back
//   moved_parts   parts that have got other owners
//   replies       what servers send
//   watch         what takes long
//
// Each knows only those above it.
#pragma once

#include <cstdint>
#include <utility>

#include "cc/base/job.h"
#include "cc/worker/state/effects.h"
#include "cc/worker/state/exchanges.h"
#include "cc/worker/state/failover.h"
#include "cc/worker/state/kept_results.h"
#include "cc/worker/state/key_table.h"
#include "cc/worker/state/lifecycle.h"
#include "cc/worker/state/lost_servers.h"
#include "cc/worker/state/moved_parts.h"
#include "cc/worker/state/path_events.h"
#include "cc/worker/state/paths.h"
#include "cc/worker/state/replies.h"
#include "cc/worker/state/tensor_placement.h"
#include "cc/worker/state/transmission.h"
#include "cc/worker/state/watch.h"
#include "cc/worker/state/worker_counters.h"

namespace byteps {

// Not thread-safe. `job` outlives it.
struct WorkerState {
  WorkerState(const JobDescription& job, int32_t rank, const Exchanges::Options& options)
      : keys(job),
        transmission(job, rank, lifecycle, failover, &servers),
        exchanges(job, rank, lifecycle, &keys, &transmission, options),
        placement(&keys, &servers, &transmission, &exchanges),
        kept_results(&keys, &servers),
        path_events(job, rank, lifecycle, &failover, &keys, &servers, &transmission),
        lost_servers(job, &failover, &keys, &servers, &transmission, &path_events),
        moved_parts(job, rank, &failover, &keys, &servers, &transmission, &exchanges),
        replies(job, rank, options.keeps_results, failover, &keys, &servers, &transmission,
                &exchanges, &kept_results, &path_events),
        watch(job, rank, keys, servers, &exchanges) {}
  WorkerState(const WorkerState&) = delete;
  WorkerState& operator=(const WorkerState&) = delete;

  // Something fatal has happened. Whether that is news.
  bool Fail(const Status& reason, const std::optional<LostPeer>& lost, Effects* effects) {
    if (!lifecycle.Fail(reason, lost)) return false;
    exchanges.FinishAll(reason, &servers, effects);
    return true;
  }
  // This worker leaves. Whether that is news.
  bool Stop(Effects* effects) {
    if (!lifecycle.Stop()) return false;
    exchanges.FinishAll(Cancelled("tf_byteps.shutdown() was called while the tensor was in flight"),
                        &servers, effects);
    return true;
  }
  // Time has passed. See Watch::OnTick.
  Status OnTick(bool is_asked_for, Effects* effects) {
    kept_results.ReportResults(effects);
    return watch.OnTick(is_asked_for, effects);
  }

  StateCounters counters(int64_t now_ns) const {
    StateCounters all;
    exchanges.AddTo(&all, now_ns);
    transmission.AddTo(&all);
    path_events.AddTo(&all);
    lost_servers.AddTo(&all);
    moved_parts.AddTo(&all);
    replies.AddTo(&all);
    all.paths = servers.counters();
    return all;
  }

  Lifecycle lifecycle;
  WorkerFailover failover;
  ServerLinks servers;
  KeyTable keys;
  Transmission transmission;
  Exchanges exchanges;
  TensorPlacement placement;
  KeptResults kept_results;
  PathEvents path_events;
  LostServers lost_servers;
  MovedParts moved_parts;
  Replies replies;
  Watch watch;
};

}  // namespace byteps

// MovedParts: parts that have got other owners (protocol rule 15). What the server before has not
// answered is pushed to the new one, from the worker's own memory: input and output of an exchange
// are never the same. The new owner also gets results that other workers lack, the rounds that this
// worker has given up, and how far it is with stores.
#pragma once

#include <cstdint>
#include <memory>

#include "cc/base/job.h"
#include "cc/worker/state/effects.h"
#include "cc/worker/state/exchanges.h"
#include "cc/worker/state/failover.h"
#include "cc/worker/state/key_table.h"
#include "cc/worker/state/paths.h"
#include "cc/worker/state/transmission.h"
#include "cc/worker/state/worker_counters.h"

namespace byteps {

// Not thread-safe.
class MovedParts {
 public:
  // All of them outlive it.
  MovedParts(const JobDescription& job, int32_t rank, WorkerFailover* failover, KeyTable* keys,
             ServerLinks* servers, Transmission* transmission, Exchanges* exchanges)
      : job_(job),
        rank_(rank),
        failover_(failover),
        keys_(keys),
        servers_(servers),
        transmission_(transmission),
        exchanges_(exchanges) {}

  // What the coordinator says.
  Status OnPartsMoved(const PartsMoved& moved, Effects* effects);

  void AddTo(StateCounters* counters) const { counters->retried_parts += retried_parts_; }

 private:
  // Sets the exchange in flight whose parts have moved; null if there is none.
  Status Place(const TableEntry& entry, std::shared_ptr<Exchange>* live);
  void PushAgain(const std::shared_ptr<Exchange>& exchange, uint32_t version);
  void SendResult(const PartsMoved::Part& part, uint64_t next_round, Effects* effects);
  void SendToOwner(int32_t server, const OutgoingFrame& frame, Effects* effects);
  void TellClock(const TableEntry& entry, uint32_t version, Effects* effects);
  void MoveWithdrawals(Effects* effects);

  const JobDescription& job_;
  const int32_t rank_;
  WorkerFailover* const failover_;
  KeyTable* const keys_;
  ServerLinks* const servers_;
  Transmission* const transmission_;
  Exchanges* const exchanges_;
  uint64_t retried_parts_ = 0;
};

}  // namespace byteps

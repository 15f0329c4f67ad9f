// Recovery: servers that are lost while others remain, and that are started again (protocol rule
// 15). How far this worker is with it is WorkerFailover's state.
//
// Nothing more is sent to a lost server, and what its connections were receiving has ended before
// this worker says how far it is (PartProgress). From then on only the new owner of a part, which
// PartsMoved names, can bring its results. What the lost server has not answered is pushed there,
// from the worker's own memory: input and output of an exchange are never the same. The last result
// of each name, and the last two of a quorum, are kept, too, until all workers are known to have
// them, since they may have reached this one only.
//
// When a server is started again, parts of servers that live move to it in the same way
// (ServerRejoined). Their connections stay: what comes over them of such a part is dropped from
// then on, but for a reply that is arriving, which PartProgress waits for.
#ifndef TF_BYTEPS_CC_WORKER_STATE_RECOVERY_H_
#define TF_BYTEPS_CC_WORKER_STATE_RECOVERY_H_

#include <cstdint>
#include <memory>

#include "cc/base/job.h"
#include "cc/worker/state/effects.h"
#include "cc/worker/state/exchanges.h"
#include "cc/worker/state/failover.h"
#include "cc/worker/state/key_table.h"
#include "cc/worker/state/lifecycle.h"
#include "cc/worker/state/paths.h"
#include "cc/worker/state/transmission.h"
#include "cc/worker/state/worker_counters.h"

namespace byteps {

// Not thread-safe.
class Recovery {
 public:
  // All of them outlive it.
  Recovery(const JobDescription& job, int32_t rank, const Lifecycle& lifecycle,
           WorkerFailover* failover, KeyTable* keys, ServerLinks* servers,
           Transmission* transmission, Exchanges* exchanges)
      : job_(job),
        rank_(rank),
        lifecycle_(lifecycle),
        failover_(failover),
        keys_(keys),
        servers_(servers),
        transmission_(transmission),
        exchanges_(exchanges) {}

  // ---- what the coordinator says

  void OnServerLost(const ServerLost& lost, Effects* effects);
  Status OnServerRejoined(const ServerRejoined& back, Effects* effects);
  Status OnPartsMoved(const PartsMoved& moved, Effects* effects);
  // All workers have these results.
  void OnResultProgress(const ResultProgress& all_have, Effects* effects);

  // ---- what servers say

  // A connection has closed, or a reply has ended: if nothing comes from the lost servers any more,
  // nor of the parts that leave others, this worker says how far it is with these parts.
  void OnDrained(Effects* effects);
  // All workers have the results of all rounds below the reply's watermark.
  void DropResults(KeyTable::Key* key, int32_t server, const FrameHeader& reply, Effects* effects);

  // What is used once, such as initial values, has no later reply that says who has it. All who
  // keep it, other workers and servers, learn that they need not.
  void ReportResults(Effects* effects);

  void AddTo(StateCounters* counters) const;

 private:
  void PushAgain(const std::shared_ptr<Exchange>& exchange, uint32_t version);
  void SendResult(const PartsMoved::Part& part, uint64_t next_round, Effects* effects);
  void SendToOwner(int32_t server, const OutgoingFrame& frame, Effects* effects);
  void TellClock(const TableEntry& entry, uint32_t version, Effects* effects);
  void MoveWithdrawals(Effects* effects);

  const JobDescription& job_;
  const int32_t rank_;
  const Lifecycle& lifecycle_;
  WorkerFailover* const failover_;
  KeyTable* const keys_;
  ServerLinks* const servers_;
  Transmission* const transmission_;
  Exchanges* const exchanges_;
  uint64_t retried_parts_ = 0;  // these: see StateCounters
  uint64_t lost_servers_ = 0;
  uint64_t returned_servers_ = 0;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_WORKER_STATE_RECOVERY_H_

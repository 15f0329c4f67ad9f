// Transmission: which parts are pushed when, over which path, as far as the credit admits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>

#include "cc/base/job.h"
#include "cc/worker/state/effects.h"
#include "cc/worker/state/exchange.h"
#include "cc/worker/state/failover.h"
#include "cc/worker/state/key_table.h"
#include "cc/worker/state/learned_order.h"
#include "cc/worker/state/lifecycle.h"
#include "cc/worker/state/link_meter.h"
#include "cc/worker/state/part_queue.h"
#include "cc/worker/state/paths.h"
#include "cc/worker/state/worker_counters.h"

namespace byteps {

// Owns the queue, its order and the credit. Not thread-safe.
class Transmission {
 public:
  // All of them outlive it.
  Transmission(const JobDescription& job, int32_t rank, const Lifecycle& lifecycle,
               const WorkerFailover& failover, ServerLinks* servers);

  // ---- priorities

  // Of an exchange that begins, by the number of its name, which it sets the first time.
  void SetPriority(Exchange* exchange, int32_t* number);
  // With the last exchange of a step in forward order what has not left goes in that order.
  void NoteBegun(const Exchange& exchange, int32_t number, const KeyTable& keys);

  // ---- parts

  // Queues a part of an exchange that is placed. `narrow`: what its elements fit in, or null.
  void Queue(const std::shared_ptr<Exchange>& exchange, uint32_t part,
             const BlockCodec* narrow = nullptr);
  // The same for one that was pushed, but for its first `offset` bytes.
  void QueueAgain(const std::shared_ptr<Exchange>& exchange, uint32_t part, uint64_t offset = 0);
  // See PartQueue.
  bool Prefer(const Exchange* exchange, uint32_t part) { return queue_.Prefer(exchange, part); }
  void RemoveIf(const std::function<bool(const PartTask&)>& matches) { queue_.RemoveIf(matches); }
  // Nothing more is pushed.
  void Clear() { queue_.Clear(); }

  // Sends what the credit admits. After whatever may have changed that.
  void Pump(Effects* effects);

  // The part has been answered, or what was sent of it is void.
  void ExpectNoAnswer(Exchange* exchange, uint32_t part);
  // Servers are told of the parts that have no result, so that the round ends for all and does not
  // wait for this worker.
  void Withdraw(const std::shared_ptr<Exchange>& exchange, const Status& reason, Effects* effects);
  // The same over a path, and kept for the one that comes after it.
  void GiveUp(int32_t server, OutgoingFrame withdrawal, Effects* effects);
  // Takes back what has not left: nobody wants it, and the caller may use the memory again.
  void Revoke(const std::shared_ptr<Exchange>& exchange, Effects* effects);

  // ---- paths

  // Pushes may go this way from now on, and what waited for it does.
  void Use(ServerLink* server, ServerPath* path, Effects* effects);
  // What was in flight over it is not, any more.
  void Break(ServerPath* path) { queue_.ReturnCredit(path->Break()); }

  // ---- credit and tuning

  void ReturnCredit(const Source& from, uint64_t bytes);
  // `taken_in` bytes have reached their servers; after Pump.
  void MeasureLink(uint64_t taken_in, Effects* effects);
  // A tensor has such parts.
  void RaiseCredit(const TableEntry& entry);
  // The coordinator has found the credit; 0: it stays.
  void Tune(uint64_t credit_bytes);

  void AddTo(StateCounters* counters) const;

 private:
  int32_t PriorityOf(const Exchange& exchange, uint32_t part) const;
  void SendPush(PartTask task, Effects* effects);

  const JobDescription& job_;
  const int32_t rank_;
  const Lifecycle& lifecycle_;
  const WorkerFailover& failover_;
  ServerLinks* const servers_;
  PartQueue queue_;
  LearnedOrder order_;
  uint64_t tuned_credit_ = 0;  // by the links; 0: not yet, or it is fixed
  // The third step has begun: now links can be measured. In the first one connections are made,
  // memory is allocated, and TensorFlow tries algorithms on the GPU; in the first two servers
  // allocate.
  bool repeats_ = false;
  std::optional<LinkMeter> link_meter_;  // none: nothing to measure, or done
  uint64_t pushed_parts_ = 0;            // these: see StateCounters
  uint64_t pushed_bytes_ = 0;
  uint64_t uncompressed_bytes_ = 0;
};

}  // namespace byteps

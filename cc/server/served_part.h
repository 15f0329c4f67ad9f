// ServedPart: one part of a tensor at the server that owns it. What happens to pushes is behind it:
// part_rounds.h has rounds that all workers share, part_store.h an asynchronous store, part_table.h
// rows of a table.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/host_map.h"
#include "cc/base/status.h"
#include "cc/server/aggregation.h"
#include "cc/server/membership.h"
#include "cc/server/state/participants.h"
#include "cc/server/state/served_push.h"
#include "cc/server/worker_connection.h"
#include "cc/wire/control.h"

namespace byteps {

class KeptTables;

// Thread-safe. Replies are handed out, not sent, so that no call into a Van happens under the
// mutex.
class ServedPart {
 public:
  struct Options : PartOptions {
    bool in_rank_order = false;
    const Membership* membership = nullptr;  // outlives this object
    KeptTables* kept = nullptr;              // the same; null: nothing is kept
    AggregationMemory memory;
  };
  virtual ~ServedPart() = default;

  // Whether it has values from one round to the next, and each worker counts its own rounds.
  virtual bool HoldsValues() const { return false; }
  // Whether it is a copy of rows that it does not have, because a server is lost.
  virtual bool LacksRows() const { return false; }
  // Nothing is asked any more: what the next epoch may need goes to KeptTables.
  virtual void Keep() {}

  // The header of a push has arrived. Sets `sink` if the payload is wanted. An error means that the
  // worker broke the protocol: it pushed this round before.
  virtual Status Begin(const Push& push, std::shared_ptr<PayloadSink>* sink,
                       std::vector<Reply>* replies) = 0;

  // All of a push is here.
  virtual PushOutcome End(const Push& push, std::vector<Reply>* replies) = 0;

  // PushOutcome::deadline_ns is here: perhaps more rounds end.
  virtual PushOutcome OnTime(std::vector<Reply>* replies) {
    (void)replies;
    return {};
  }

  // `from` has come again, and asks for the push of `round` that it made before, and has no answer
  // to. If not all of that is here, sets `received_bytes` to how much is: the push may go on. An
  // answer that was lost is handed out again.
  virtual Status Resume(const std::shared_ptr<WorkerConnection>& from, uint64_t round,
                        std::optional<uint64_t>* received_bytes, std::vector<Reply>* replies) = 0;

  // `worker` has given up a round, for the reason of `status`, and those before it that have not
  // ended: they fail for all, also for those who push them later. Nothing happens if it has ended.
  virtual void Withdraw(int32_t worker, const TableEntry& entry, uint64_t round,
                        const Status& status, std::vector<Reply>* replies) = 0;

  // The server that had the part is lost. The workers have said how far they are, and who of them
  // will send results that others lack.
  virtual void GoOnFrom(const PartsMoved::Part& agreed) = 0;
  // Such a result arrives. An error means that the worker broke the protocol.
  virtual Status BeginResult(Push* push, std::shared_ptr<PayloadSink>* sink) = 0;
  virtual void EndResult(Push* push, std::vector<Reply>* replies) = 0;

  // All workers have the results of all rounds before `next_round`: gives back the memory that
  // waits for the next one.
  virtual void OnResultProgress(uint64_t next_round) = 0;

  // After Membership has been told that workers have joined: perhaps the round ends.
  virtual PushOutcome OnJoined(std::vector<Reply>* replies) {
    (void)replies;
    return {};
  }

  // The same when all have joined, and take part again. Nothing is in flight.
  virtual void OnAllJoined() {}

  // Both after Membership has been told. A worker is lost: the open round fails, if there is one.
  virtual void OnLost(std::vector<Reply>* replies) = 0;
  // These have departed: the open round fails if it lacks the push of one of them.
  virtual void OnDeparted(const std::vector<DepartedWorker>& departed,
                          std::vector<Reply>* replies) = 0;
};

}  // namespace byteps

// PartStore: one part of an asynchronous store (ExchangeKind::kStore): the sum of all that was
// pushed, and each worker's newest push.
//
// A push is added when all of it is here, and is answered at once with the store, or later if its
// worker is too far ahead of others (server/state/store_clocks.h). The new store is in the memory
// in which the push arrived: replies that are still being sent have their own, and nothing is
// copied.
//
// A push that was cut off by a broken connection comes again whole. A lost answer is made again
// from the store as it is then.
//
// If the server is lost, the store goes on from the newest answer that a worker has. What is in no
// answer is lost with the server, but for pushes that have none: those are made again, once.
//
// Cost: a push is added under the mutex, while no other one of this part is. Memory: the store, and
// the pushes that are arriving or being answered, at most two for each worker.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/server/newest_push.h"
#include "cc/server/served_part.h"
#include "cc/server/state/store_clocks.h"

namespace byteps {

// Thread-safe.
class PartStore : public ServedPart {
 public:
  // `entry`: of the store, lives as long as the service.
  PartStore(Options options, const TableEntry* entry);

  bool HoldsValues() const override { return true; }
  Status Begin(const Push& push, std::shared_ptr<PayloadSink>* sink,
               std::vector<Reply>* replies) override;
  PushOutcome End(const Push& push, std::vector<Reply>* replies) override;
  Status Resume(const std::shared_ptr<WorkerConnection>& from, uint64_t round,
                std::optional<uint64_t>* received_bytes, std::vector<Reply>* replies) override;
  // Nobody waits for the worker until it pushes again.
  void Withdraw(int32_t worker, const TableEntry& entry, uint64_t round, const Status& status,
                std::vector<Reply>* replies) override;
  // `agreed.next_round`: the newest version that a worker has; 0: none.
  void GoOnFrom(const PartsMoved::Part& agreed) override;
  Status BeginResult(Push* push, std::shared_ptr<PayloadSink>* sink) override;
  void EndResult(Push* push, std::vector<Reply>* replies) override;
  void OnResultProgress(uint64_t next_round) override { (void)next_round; }
  void OnAllJoined() override;
  void OnLost(std::vector<Reply>* replies) override;
  void OnDeparted(const std::vector<DepartedWorker>& departed,
                  std::vector<Reply>* replies) override;

 private:
  enum class State {
    kIdle,       // it has pushed nothing, or given it up
    kReceiving,  // the header is here, the payload not all
    kArrived,    // the value of the store is still to come from a worker
    kAhead,      // it is in the store; the answer waits for slower workers
    kAnswered,
  };
  // `payload`: until it is in the store.
  struct Newest : NewestPush {
    State state = State::kIdle;
    uint64_t given_up = 0;  // no round before this one is added any more
  };

  Status Receive(const Push& push, std::shared_ptr<PayloadSink>* sink) BYTEPS_REQUIRES(mutex_);
  void Take(int32_t worker, std::vector<Reply>* replies) BYTEPS_REQUIRES(mutex_);
  void Add(std::shared_ptr<Buffer> payload) BYTEPS_REQUIRES(mutex_);
  Status Describe(StoreClocks::Verdict verdict, uint64_t round) const BYTEPS_REQUIRES(mutex_);
  void AnswerWaiting(std::vector<Reply>* replies) BYTEPS_REQUIRES(mutex_);
  void FailWaiting(const Status& status, std::vector<Reply>* replies) BYTEPS_REQUIRES(mutex_);
  void Answer(int32_t worker, std::vector<Reply>* replies) BYTEPS_REQUIRES(mutex_);
  void AnswerWith(const Status& error, int32_t worker, std::vector<Reply>* replies)
      BYTEPS_REQUIRES(mutex_);
  // See Joined::Clock; 0 where nobody waits for anybody.
  uint64_t LeadOf(int32_t worker, uint64_t round) const;
  std::string Title() const { return "tensor \"" + options_.tensor_name + "\""; }

  const Options options_;
  const TableEntry* const entry_;
  const uint64_t elements_;
  const std::shared_ptr<BufferPool> buffers_;
  Mutex mutex_;
  StoreClocks clocks_ BYTEPS_GUARDED_BY(mutex_);
  std::shared_ptr<Buffer> store_ BYTEPS_GUARDED_BY(mutex_);   // null: there is none
  std::vector<Newest> workers_ BYTEPS_GUARDED_BY(mutex_);     // by rank
  std::vector<int32_t> waiting_ BYTEPS_GUARDED_BY(mutex_);    // kArrived or kAhead
  uint64_t seen_slowest_ BYTEPS_GUARDED_BY(mutex_) = 0;       // when `waiting_` was looked at
  uint64_t inherited_version_ BYTEPS_GUARDED_BY(mutex_) = 0;  // to come from inherited_from_
  int32_t inherited_from_ BYTEPS_GUARDED_BY(mutex_) = -1;     // -1: nothing is to come
};

}  // namespace byteps

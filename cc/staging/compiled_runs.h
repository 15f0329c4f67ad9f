// CompiledRuns: the exchanges of programs that XLA has compiled for the CPU, from start to end.
//
// XLA owns a program's memory, and frees it when a run has failed, without a word to us: a callback
// of the user's between start and done may raise an exception. So the engine reads a copy of each
// input, and results arrive in memory of ours. Each start costs a copy of its bytes and as much
// memory until its end.
//
// A failure of ours is told only when the engine has ended everything that was started: then the
// program may start the same names again. Each exchange ends, soon after a worker or a server was
// lost, and all do with the job.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/gpu/pinned_pool.h"
#include "cc/worker/state/exchange_request.h"

namespace byteps {

// A compiled gather has room for as many rows of each worker as this one has. An error that says
// who has others.
Status CheckGatheredRows(const std::string& name, int64_t own_rows, int64_t all_rows,
                         const std::vector<int64_t>& rows);

// Thread-safe.
class CompiledRuns {
 public:
  using EnqueueFunction = std::function<void(ExchangeRequest)>;
  // Runs what it is given on a thread that may take its time.
  using CallLater = std::function<void(std::function<void()>)>;
  // Gets OK and the result, or the failure of the run. Called once.
  using Use = std::function<void(const Status&, const void* result, uint64_t bytes)>;

  CompiledRuns(EnqueueFunction enqueue, CallLater call_later);

  // Starts an exchange of a run. The request says what, and has the input, which is copied and
  // whose memory tells uses of one name apart; the rest is filled in here. `all_rows`: of a gather,
  // see above. Does not wait for the exchange.
  //
  // After a failure that nobody has been told it starts all the same, since the other workers may
  // do so and would wait for this one. Later it is OK without a start: the program may have begun
  // its next run with the same names.
  Status Start(uint32_t run, ExchangeRequest request, int64_t all_rows);

  // Calls `use` when the exchange that the run has started with this name and memory has ended: at
  // once, or by `call_later`. Once for each start.
  void WhenEnded(uint32_t run, const std::string& name, const void* input, Use use);

 private:
  struct Exchange;
  using ExchangePointer = std::shared_ptr<Exchange>;
  using Place = std::pair<std::string, const void*>;
  struct Failure {
    Status reason;
    bool is_reported = false;
  };

  void* AllocateGathered(Exchange* exchange, const TensorDescription& tensor, int64_t own_rows,
                         int64_t all_rows, const std::vector<int64_t>& rows);
  bool Begin(const ExchangePointer& exchange);
  void End(const ExchangePointer& exchange, const Status& status);
  void AwaitDone(const ExchangePointer& exchange) BYTEPS_REQUIRES(mutex_);
  ExchangePointer Claim(uint32_t run, const Place& place) BYTEPS_REQUIRES(mutex_);
  void Fail(uint32_t run, const Status& reason) BYTEPS_REQUIRES(mutex_);
  // What reports to `use` the failure of its run.
  std::function<void()> FailureReport(uint32_t run, Use use) BYTEPS_REQUIRES(mutex_);

  const EnqueueFunction enqueue_;
  const CallLater call_later_;
  const std::shared_ptr<PinnedPool> memory_;

  Mutex mutex_;
  int at_work_ BYTEPS_GUARDED_BY(mutex_) = 0;  // exchanges that the engine has
  // Started, and nobody has asked for the end.
  std::map<Place, std::deque<ExchangePointer>> started_ BYTEPS_GUARDED_BY(mutex_);
  // The last runs that have failed: threads of theirs may come late.
  std::unordered_map<uint32_t, Failure> failures_ BYTEPS_GUARDED_BY(mutex_);
  std::deque<uint32_t> failed_ BYTEPS_GUARDED_BY(mutex_);
  // Who is to be told a failure when nothing is at work.
  std::vector<std::pair<uint32_t, Use>> failing_ BYTEPS_GUARDED_BY(mutex_);
};

}  // namespace byteps

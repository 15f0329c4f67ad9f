// Worker: sends this process's tensors to the summation servers and brings the results back.
//
// The life of a tensor: Enqueue -> (first use: declared, the coordinator answers with parts and
// owners) -> its parts wait in the PartQueue -> push frames -> replies are received into
// the output -> done.
//
// Worker decides what happens when, and has the one mutex. What it knows belongs to these classes,
// none of which knows Worker:
//
//   KeyTable          each tensor's descriptions, placement, next round and exchange in flight
//   PartQueue         the parts that wait, and the credit; their priorities are LearnedOrder's
//   ServerLinks       the connections to the servers, and what waits for one
//   ContributionForm  codecs and narrow forms
//   WorkerFailover    how far this worker is with parts that get other owners
//   StallReports      reports about exchanges that take long
//   ArrivalReports    how late each worker's contributions come; StragglerWatch judges them
//   StepMeter, LinkMeter
#ifndef TF_BYTEPS_CC_WORKER_WORKER_H_
#define TF_BYTEPS_CC_WORKER_WORKER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/job.h"
#include "cc/base/mutex.h"
#include "cc/base/periodic_thread.h"
#include "cc/coordinator/coordinator_link.h"
#include "cc/van/van.h"
#include "cc/worker/arrival_reports.h"
#include "cc/worker/contribution_form.h"
#include "cc/worker/exchange.h"
#include "cc/worker/key_table.h"
#include "cc/worker/learned_order.h"
#include "cc/worker/link_meter.h"
#include "cc/worker/part_queue.h"
#include "cc/worker/server_links.h"
#include "cc/worker/stall_reports.h"
#include "cc/worker/state/failover.h"
#include "cc/worker/step_meter.h"
#include "cc/worker/straggler_watch.h"
#include "cc/worker/timeline.h"
#include "cc/worker/worker_counters.h"

namespace byteps {

// Who ended the job by being lost.
struct LostPeer {
  Role role = Role::kWorker;
  int32_t rank = 0;  // the coordinator has none
};

// What lives and ends with a worker: the group of its host's GPUs. Calls come on engine threads.
class WorkerCompanion {
 public:
  virtual ~WorkerCompanion() = default;

  // What the companion of another worker has sent with Worker::RelayTo.
  virtual void OnRelay(int32_t from, const std::string& bytes) = 0;
  // Nothing can be exchanged any more. The worker's exchanges have ended.
  virtual void OnFailure(const Status& reason) = 0;
  // The worker is about to say goodbye; may block for some seconds. No call comes after it.
  virtual void OnStop() = 0;
};

// Thread-safe.
class Worker : private ConnectionHandler {
 public:
  // `timeline` outlives the worker; null: nothing is recorded. `van`: null for the one that the
  // job's options name.
  Worker(const JobDescription& job, int32_t rank, Timeline* timeline = nullptr,
         std::unique_ptr<Van> van = nullptr);
  ~Worker() override;

  // Connects to the coordinator and all servers; once. A job of one worker without servers connects
  // to nothing: its exchanges are local copies.
  Status Start();

  // See engine/engine.h.
  void Enqueue(ExchangeRequest request);
  void Enqueue(PartedExchangeRequest request);
  void Declare(std::vector<TensorDescription> tensors);

  // For workers that part within a training and meet again, see worker_rounds.cc. By name, the
  // round that each tensor's next exchange will have.
  std::map<std::string, uint64_t> NextRounds() const;
  // Gives up the next round of these tensors, as if an exchange had been begun and cancelled: the
  // others, which may wait for this worker there, get `reason`. Unknown tensors, and those that are
  // on their way, are left alone.
  void GiveUpRounds(const std::vector<std::string>& names, const std::string& reason);
  // The next exchange of each tensor will have this round, unless it is further already.
  void SkipToRounds(const std::map<std::string, uint64_t>& rounds);

  // Error feedback, by tensor. What is restored becomes the tensor's when its next exchange is
  // placed, in place of what there is then.
  std::map<std::string, Residual> Residuals() const;
  void RestoreResiduals(std::map<std::string, Residual> residuals);

  // For an exchange by parts, after it has been placed; a part at most once. Nothing happens if the
  // exchange has ended meanwhile.
  void SendPart(const std::shared_ptr<Exchange>& exchange, PartRequest request);
  // Ends an exchange by parts; nothing happens if it has ended.
  void End(const std::shared_ptr<Exchange>& exchange, const Status& status);
  // The input of an exchange by parts has been computed: until now its step has not waited for it.
  void NoteInput(const std::shared_ptr<Exchange>& exchange);
  // A batch of so many samples has come, after a wait.
  void NoteBatch(int64_t waited_ns, uint64_t samples);
  // Notes in the timeline, if one is recorded, that a part of an exchange by parts is past a stage.
  void NoteStage(const std::shared_ptr<Exchange>& exchange, uint32_t part,
                 int64_t PartTrace::* end_of_stage);

  // One at most; gets what was relayed before, too. The error says why there can be none: the
  // worker has failed or is stopping.
  Status Attach(const std::shared_ptr<WorkerCompanion>& companion);
  // By way of the coordinator, in order; for what is urgent there are connections.
  void RelayTo(int32_t worker, std::string bytes);

  const JobDescription& job() const { return job_; }
  int32_t rank() const { return rank_; }
  // Whether it is the job's only worker, without a server.
  bool is_alone() const { return local_; }

  // Ends what is pending with CANCELLED, says goodbye, closes all connections. Idempotent.
  void Stop();

  // Why nothing can be exchanged any more; OK while all is well.
  Status failure() const;
  // Whose loss it was, if it was a loss.
  std::optional<LostPeer> lost_peer() const;

  WorkerCounters counters() const;

  // By rank, as the servers have last reported it, together; empty before that.
  std::vector<WorkerLag> arrival_lags() const;
  // The Van's; null where there is none. After Start.
  std::shared_ptr<MemoryRegistry> memory_registry() const;

 private:
  using Key = KeyTable::Key;
  using Variant = KeyTable::Variant;
  // What has to happen once the mutex is free, and who locks the mutex and sees to that.
  struct Actions;
  class Transaction;

  // ConnectionHandler, for the connections to servers.
  void OnOpen(const std::shared_ptr<Connection>& connection) override;
  Status OnHeader(Connection& connection, const FrameHeader& header,
                  std::shared_ptr<PayloadSink>* sink) override;
  Status OnFrame(Connection& connection, const FrameHeader& header,
                 std::shared_ptr<PayloadSink> sink) override;
  void OnClosed(Connection& connection, const Status& reason) override;

  // worker.cc: from Start to Stop, and what the coordinator says.
  void OnControl(ControlMessage message);
  void OnRelay(const Relay& relay);
  void Fail(const Status& reason, const std::optional<LostPeer>& lost = std::nullopt);
  bool CoordinatorIsLost() const;
  // With mutex_ held.
  Status Refusal() const BYTEPS_REQUIRES(mutex_);

  // worker_exchanges.cc: tensors that callers give, until they end.
  Status CheckTerms(ExchangeTerms* terms, uint64_t* start_step) const;
  Status CheckMayDrop(const TensorDescription& tensor) const;
  void Begin(const std::shared_ptr<Exchange>& exchange, uint64_t start_step);
  void FinishLocally(const ExchangeRequest& request);
  std::unique_ptr<ExchangeTrace> NewTrace(const ExchangeTerms& request, uint64_t round) const;
  // With mutex_ held.
  Status CheckMayBegin(const Key& key, const TensorDescription& tensor) const
      BYTEPS_REQUIRES(mutex_);
  void BeginRound(const std::shared_ptr<Exchange>& exchange, Key* key, Actions* actions)
      BYTEPS_REQUIRES(mutex_);
  // With `last` a step's exchanges in forward order are all there.
  void CompleteStep(const Exchange& last) BYTEPS_REQUIRES(mutex_);
  void Finish(const std::shared_ptr<Exchange>& exchange, const Status& status, Actions* actions)
      BYTEPS_REQUIRES(mutex_);
  void FinishAll(const Status& reason, Actions* actions) BYTEPS_REQUIRES(mutex_);
  void Withdraw(const std::shared_ptr<Exchange>& exchange, const Status& reason, Actions* actions)
      BYTEPS_REQUIRES(mutex_);
  void Revoke(const Exchange& exchange, Actions* actions) BYTEPS_REQUIRES(mutex_);
  void CountStart(int64_t now_ns) BYTEPS_REQUIRES(mutex_);
  void CountEnd(bool well, int64_t now_ns) BYTEPS_REQUIRES(mutex_);

  // worker_placement.cc: declarations, parts and owners, new cuts. With mutex_ held.
  void SendDeclarations(Actions* actions) BYTEPS_REQUIRES(mutex_);
  Status OnDeclareReply(DeclareReply reply, Actions* actions) BYTEPS_REQUIRES(mutex_);
  // Places and sends the exchange that a key has, unless it must wait: for its placement, or for
  // new cuts.
  void DispatchIfPlaced(Key& key, Actions* actions) BYTEPS_REQUIRES(mutex_);
  void RaiseCredit(const TableEntry& entry) BYTEPS_REQUIRES(mutex_);
  void HoldRounds(Actions* actions) BYTEPS_REQUIRES(mutex_);
  Status OnRetune(Retune retune, Actions* actions) BYTEPS_REQUIRES(mutex_);
  void MeasureLink(uint64_t taken_in, Actions* actions) BYTEPS_REQUIRES(mutex_);

  // worker_pushes.cc: parts on their way to the servers. With mutex_ held.
  void Dispatch(const std::shared_ptr<Exchange>& exchange, Actions* actions)
      BYTEPS_REQUIRES(mutex_);
  int32_t PriorityOf(const Exchange& exchange, uint32_t part) const BYTEPS_REQUIRES(mutex_);
  // Before the part is queued.
  void SetNarrow(Exchange* exchange, uint32_t part, const BlockCodec* form) BYTEPS_REQUIRES(mutex_);
  void Pump(Actions* actions) BYTEPS_REQUIRES(mutex_);
  void SendPush(PartTask task, Actions* actions) BYTEPS_REQUIRES(mutex_);
  // The part has been answered, or what was sent of it is void.
  void ExpectNoAnswer(Exchange* exchange, uint32_t part) BYTEPS_REQUIRES(mutex_);
  void GiveUp(int32_t server, OutgoingFrame withdrawal, Actions* actions) BYTEPS_REQUIRES(mutex_);
  void ReturnCredit(const Connection& from, uint64_t bytes) BYTEPS_REQUIRES(mutex_);

  // worker_replies.cc: what comes from the servers.
  Status OnServersNews(Connection& connection, PayloadSink* sink);
  // With mutex_ held.
  void OnWanted(const FrameHeader& header) BYTEPS_REQUIRES(mutex_);
  // The exchange that a reply is for; null if it has ended meanwhile. An error if there can be no
  // such reply.
  Status FindReplied(Connection& connection, const FrameHeader& header,
                     std::shared_ptr<Exchange>* exchange) BYTEPS_REQUIRES(mutex_);
  Status NewSink(const Connection& connection, const std::shared_ptr<Exchange>& exchange,
                 const FrameHeader& header, std::shared_ptr<PayloadSink>* sink) const
      BYTEPS_REQUIRES(mutex_);
  Status FinishPart(const std::string& server, const std::shared_ptr<Exchange>& exchange,
                    const FrameHeader& header, PayloadSink* sink, Actions* actions)
      BYTEPS_REQUIRES(mutex_);

  // worker_paths.cc: connections that are made, break, and are made again.
  void PreparePaths();
  Status ConnectToServers();
  Status CheckMayConnect(int32_t server) const;
  // Within so many seconds.
  Status Connect(int32_t server, uint32_t path, double seconds);
  bool WasLost(int32_t server) const;
  // The one that the server was in its `life`: how often it had been started again.
  void LoseServer(int32_t server, int life, const Status& reason);
  // With mutex_ held.
  // Pushes may go this way from now on, and what waited for it does.
  void Use(ServerLink* server, ServerPath* path, Actions* actions) BYTEPS_REQUIRES(mutex_);
  Status OnResumeAnswer(Connection& connection, const ResumeAnswer& answer, Actions* actions)
      BYTEPS_REQUIRES(mutex_);

  // worker_failover.cc: servers that are lost or come back. With mutex_ held.
  bool MayGoOnWithout(int32_t server) const BYTEPS_REQUIRES(mutex_);
  void OnServerLost(const ServerLost& lost, Actions* actions) BYTEPS_REQUIRES(mutex_);
  Status OnServerBack(const ServerBack& back, Actions* actions) BYTEPS_REQUIRES(mutex_);
  bool IsMoving(const Exchange& exchange, uint32_t part) const BYTEPS_REQUIRES(mutex_);
  void HoldPartsIfClosed(Actions* actions) BYTEPS_REQUIRES(mutex_);
  Status OnPartsMoved(const PartsMoved& moved, Actions* actions) BYTEPS_REQUIRES(mutex_);
  void PushAgain(const std::shared_ptr<Exchange>& exchange, uint32_t version)
      BYTEPS_REQUIRES(mutex_);
  void SendResult(const PartsMoved::Part& part, Actions* actions) BYTEPS_REQUIRES(mutex_);
  void MoveWithdrawals(Actions* actions) BYTEPS_REQUIRES(mutex_);
  // An exchange that has ended well, in place of the one before.
  void Keep(const std::shared_ptr<Exchange>& exchange, Key* key, Actions* actions)
      BYTEPS_REQUIRES(mutex_);
  void ReportResults(int64_t now, Actions* actions) BYTEPS_REQUIRES(mutex_);
  void OnResultsHeld(const ResultsHeld& all_have, Actions* actions) BYTEPS_REQUIRES(mutex_);
  void DropResults(Key* key, int32_t server, const FrameHeader& reply, Actions* actions)
      BYTEPS_REQUIRES(mutex_);

  // worker_watch.cc: what takes long.
  void Watch();
  // With mutex_ held.
  int64_t EndOverdue(int64_t now, Actions* actions) BYTEPS_REQUIRES(mutex_);
  void NameStraggler(int64_t now) BYTEPS_REQUIRES(mutex_);

  const JobDescription job_;
  const int32_t rank_;
  const bool local_;          // one worker, no server
  const bool keeps_results_;  // for when a server is lost
  Timeline* const timeline_;
  ContributionForm form_;
  std::unique_ptr<Van> van_;
  std::unique_ptr<CoordinatorLink> coordinator_;
  PeriodicThread watch_;

  mutable Mutex mutex_;
  CondVar goodbye_answered_;
  ServerLinks servers_ BYTEPS_GUARDED_BY(mutex_);
  KeyTable keys_ BYTEPS_GUARDED_BY(mutex_);
  PartQueue queue_ BYTEPS_GUARDED_BY(mutex_);
  WorkerFailover failover_ BYTEPS_GUARDED_BY(mutex_);
  // The third step has begun: now links can be measured. In the first one connections are made,
  // memory is allocated, and TensorFlow tries algorithms on the GPU; in the first two servers
  // allocate.
  bool repeats_ BYTEPS_GUARDED_BY(mutex_) = false;
  std::unique_ptr<LinkMeter> link_meter_
      BYTEPS_GUARDED_BY(mutex_);  // null: nothing to measure, or done
  bool holds_rounds_ BYTEPS_GUARDED_BY(mutex_) =
      false;  // exchanges are not placed: new cuts are to come
  uint64_t tuned_credit_ BYTEPS_GUARDED_BY(mutex_) = 0;  // by the links; 0: not yet, or it is fixed
  LearnedOrder order_ BYTEPS_GUARDED_BY(mutex_);
  std::shared_ptr<WorkerCompanion> companion_ BYTEPS_GUARDED_BY(mutex_);
  std::vector<Relay> relayed_ BYTEPS_GUARDED_BY(mutex_);  // before there was a companion
  Status failure_ BYTEPS_GUARDED_BY(mutex_);
  std::optional<LostPeer> lost_peer_ BYTEPS_GUARDED_BY(mutex_);
  bool stopping_ BYTEPS_GUARDED_BY(mutex_) = false;
  bool coordinator_is_lost_ BYTEPS_GUARDED_BY(mutex_) = false;  // says a server
  bool left_ BYTEPS_GUARDED_BY(mutex_) = false;  // the coordinator has answered our goodbye
  WorkerCounters counters_ BYTEPS_GUARDED_BY(mutex_);
  StepMeter step_meter_ BYTEPS_GUARDED_BY(mutex_);
  StragglerWatch straggler_watch_ BYTEPS_GUARDED_BY(mutex_);
  ArrivalReports arrivals_ BYTEPS_GUARDED_BY(mutex_);
  StallReports stalls_ BYTEPS_GUARDED_BY(mutex_);
  int64_t exchanging_since_ns_ BYTEPS_GUARDED_BY(mutex_) = 0;  // while an exchange is in flight
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_WORKER_WORKER_H_

// Worker: sends this process's tensors to the summation servers and brings the results back.
//
// The life of a tensor: Enqueue -> (first use: declared, the coordinator answers with parts and
// owners) -> its parts wait in the PartQueue -> push frames -> replies are received into
// the output -> done.
//
// What happens when is decided by its WorkerState (worker/state), which has no lock, thread,
// connection or clock. Worker is what is around it: it has the one mutex, the connections and the
// threads, tells the state what happens, and performs what that decides, without the mutex
// (Worker::Transaction). The bytes of tensors are exchange_output.h's, also without the mutex.
#pragma once

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
#include "cc/van/reconnector.h"
#include "cc/van/van.h"
#include "cc/worker/contribution_form.h"
#include "cc/worker/exchange_output.h"
#include "cc/worker/row_choices.h"
#include "cc/worker/state/effects.h"
#include "cc/worker/state/worker_state.h"
#include "cc/worker/tensor_feedback.h"
#include "cc/worker/timeline.h"
#include "cc/worker/worker_counters.h"

namespace byteps {

// What lives and ends with a worker: the group of its host's GPUs. Calls come on engine threads.
class WorkerListener {
 public:
  virtual ~WorkerListener() = default;

  // What the listener of another worker has sent with Worker::RelayTo.
  virtual void OnRelay(int32_t from, const std::string& bytes) = 0;
  // This worker has given up a round of a tensor, and all before it that it has not begun. None of
  // its exchanges by parts has ended by that.
  virtual void OnGivenUp(uint64_t key, uint64_t round, const Status& reason) = 0;
  // The worker is to give up the next round of a tensor. False: at once. True: the listener holds
  // exchanges of this name that are to begin before, and calls GiveUpRoundNow after them.
  virtual bool GivesUpInTurn(const std::string& name, const std::string& reason) = 0;
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

  // For workers that part within a training and meet again, see state/exchanges.h. By name, the
  // round that each tensor's next exchange will have.
  std::map<std::string, uint64_t> NextRounds() const;
  // Gives up the next round of these tensors, as if an exchange had been begun and cancelled: the
  // others, which may wait for this worker there, get `reason`. If the round before is in flight,
  // they get it after that.
  void GiveUpRounds(const std::vector<std::string>& names, const std::string& reason);
  // For the listener.
  void GiveUpRoundNow(const std::string& name, const std::string& reason);
  // Gives up all rounds of these tensors in the training that this worker leaves, see
  // state/exchanges.h: the others get `reason` as soon as TellLeft is called, or the next exchange
  // begins.
  void Leave(const std::vector<std::string>& names, uint64_t trainings, const std::string& reason);
  void TellLeft();
  // Of what is given to the engine now: see ExchangeTerms.
  uint64_t training() const;
  // The next exchange of each tensor will have this round, unless it is further already.
  void SkipToRounds(const std::map<std::string, uint64_t>& rounds);
  // See Exchanges.
  void BeginStores(const std::vector<std::string>& names);

  // This worker has no more data: until all workers have joined, sums get zeros from it, and it
  // begins no exchange. Refused while one of its own is in flight.
  Status BeginJoin();
  // Waits so long at most. Sets `last` to who was the last to join, once all have.
  Status WaitForJoin(double seconds, std::optional<int32_t>* last);

  // How rows of tables are added up.
  RowChoices& row_choices() { return row_choices_; }

  // Whether others have begun the tensor's next exchange, and a server asks this worker to, too.
  bool IsRequested(const std::string& name) const;

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
  Status Attach(const std::shared_ptr<WorkerListener>& listener);
  // By way of the coordinator, in order; for what is urgent there are connections.
  void RelayTo(int32_t worker, std::string bytes);

  const JobDescription& job() const { return job_; }
  int32_t rank() const { return rank_; }

  // Ends what is pending with CANCELLED, says goodbye, closes all connections. Idempotent.
  // `lost`: why this worker cannot go on, if that is a loss of which the coordinator does not know.
  // Then it is a loss for all others: their exchanges end with UNAVAILABLE.
  void Stop(const std::string& lost = "");

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
  class Transaction;

  // ConnectionHandler, for the connections to servers.
  void OnOpen(const std::shared_ptr<Connection>& connection) override;
  Status OnHeader(Connection& connection, const FrameHeader& header,
                  std::shared_ptr<PayloadSink>* sink) override;
  Status OnFrame(Connection& connection, const FrameHeader& header,
                 std::shared_ptr<PayloadSink> sink) override;
  void OnClosed(Connection& connection, const Status& reason) override;

  // worker.cc: from Start to Stop.
  void SayGoodbye(const std::string& lost);
  void Watch();

  // worker_control.cc: what the coordinator says, and what ends the job.
  void OnControl(ControlMessage message);
  Status OnDecision(ControlMessage* message, Effects* effects) BYTEPS_REQUIRES(mutex_);
  void OnRelay(const Relay& relay);
  void OnStallNotice(const StallNotice& notice);
  void Fail(const Status& reason, const std::optional<LostPeer>& lost = std::nullopt);

  // worker_exchanges.cc: tensors that callers give.
  void Refuse(const ExchangeTerms& request, const Status& reason);
  Status CheckTerms(ExchangeTerms* terms, uint64_t* start_step) const;
  Status CheckMayDrop(const TensorDescription& tensor) const;
  void Begin(const std::shared_ptr<Exchange>& exchange, uint64_t start_step);
  void FinishLocally(const ExchangeRequest& request);
  void AddToOwnStore(const ExchangeRequest& request);
  std::unique_ptr<ExchangeTrace> NewTrace(const ExchangeTerms& request) const;

  // worker_connections.cc: connections that are made, break, and are made again, and what comes
  // over them.
  void PreparePaths();
  Status ConnectToServers();
  Status CheckMayConnect(int32_t server) const;
  // Within so many seconds.
  Status Connect(int32_t server, uint32_t path, double seconds);
  // Whether the coordinator has given it up, or does so in a moment.
  bool AwaitLoss(int32_t server);
  // The one that the server was in its `life`: how often it had been started again.
  void LoseServer(int32_t server, int life, const Status& reason);
  Status OnServerMessage(Connection& connection, PayloadSink* sink);
  // If so, it has been reported.
  bool IsCutOff(const Connection& connection, const PeerLost& lost);
  Status NewSink(const Connection& connection, const std::shared_ptr<Exchange>& exchange,
                 const FrameHeader& header, std::shared_ptr<PayloadSink>* sink) const
      BYTEPS_REQUIRES(mutex_);

  // What the state has decided about them is done.
  void ChangeConnections(const Effects& effects) BYTEPS_EXCLUDES(mutex_);

  // worker_transaction.cc: what the state has decided is done. Without the mutex.
  void Perform(Effects* effects) BYTEPS_EXCLUDES(mutex_);
  void TellListener(std::vector<Effects::GivenUp> given_up) BYTEPS_EXCLUDES(mutex_);
  void CallBack(Effects* effects) BYTEPS_EXCLUDES(mutex_);
  void Revoke(const Effects::Revocation& revocation,
              std::vector<std::shared_ptr<const void>>* dropped) BYTEPS_EXCLUDES(mutex_);
  void ReportLink(const Effects::LinkFound& link) BYTEPS_EXCLUDES(mutex_);

  const JobDescription job_;
  const int32_t rank_;
  const bool local_;  // one worker, no server
  Timeline* const timeline_;
  RowChoices row_choices_;
  ContributionForm form_;
  std::unique_ptr<Van> van_;
  std::unique_ptr<CoordinatorLink> coordinator_;
  PeriodicThread watch_;
  // By server and path: one for each. Set by Start, then unchanged.
  std::vector<std::vector<std::unique_ptr<Reconnector>>> reconnectors_;

  mutable Mutex mutex_;
  CondVar heard_;  // an answer to our goodbye, or of a server that is lost
  WorkerState state_ BYTEPS_GUARDED_BY(mutex_);
  std::shared_ptr<WorkerListener> listener_ BYTEPS_GUARDED_BY(mutex_);
  // Before there was a listener: what was relayed, and what this worker has given up, by key.
  std::vector<Relay> relayed_ BYTEPS_GUARDED_BY(mutex_);
  std::map<uint64_t, Effects::GivenUp> given_up_ BYTEPS_GUARDED_BY(mutex_);
  bool coordinator_is_lost_ BYTEPS_GUARDED_BY(mutex_) = false;  // says a server
  // local_: the asynchronous stores, by name.
  std::map<std::string, std::vector<uint8_t>> own_stores_ BYTEPS_GUARDED_BY(mutex_);
  bool has_started_ BYTEPS_GUARDED_BY(mutex_) = false;
  bool left_ BYTEPS_GUARDED_BY(mutex_) = false;  // the coordinator has answered our goodbye
  bool has_joined_ BYTEPS_GUARDED_BY(mutex_) = false;
  std::optional<Joined> all_joined_ BYTEPS_GUARDED_BY(mutex_);  // or why they cannot
  CondVar join_ended_;
};

}  // namespace byteps

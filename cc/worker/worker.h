// Worker: sends this process's tensors to the summation servers and brings the results back.
//
// The life of a tensor: Enqueue -> (first use: declared, the coordinator answers with parts and
// owners) -> its parts wait in the PartQueue -> push frames -> replies are received into
// the output -> done.
#ifndef TF_BYTEPS_CC_WORKER_WORKER_H_
#define TF_BYTEPS_CC_WORKER_WORKER_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "cc/base/job.h"
#include "cc/base/periodic_thread.h"
#include "cc/coordinator/coordinator_link.h"
#include "cc/van/reconnector.h"
#include "cc/van/van.h"
#include "cc/worker/exchange.h"
#include "cc/worker/learned_order.h"
#include "cc/worker/link_meter.h"
#include "cc/worker/part_queue.h"
#include "cc/worker/step_meter.h"
#include "cc/worker/straggler_watch.h"
#include "cc/worker/timeline.h"

namespace byteps {

// Of one connection to a server.
struct PathCounters {
  int32_t server = 0;
  uint32_t path = 0;
  uint64_t pushed_bytes = 0;
  uint64_t received_bytes = 0;
  uint64_t in_flight_bytes = 0;
  uint64_t reconnects = 0;  // to the same process
};

// Who ended the job by being lost.
struct LostPeer {
  Role role = Role::kWorker;
  int32_t rank = 0;  // the coordinator has none
};

struct WorkerCounters {
  uint64_t started_exchanges = 0;
  uint64_t exchanges = 0;  // tensors that ended, well or not
  uint64_t failed_exchanges = 0;
  int64_t exchanging_ns = 0;  // with at least one exchange in flight
  uint64_t pushed_parts = 0;
  uint64_t pushed_bytes = 0;        // payload handed to the Van
  uint64_t uncompressed_bytes = 0;  // what that is before compression
  uint64_t credit_bytes = 0;        // how much may be on the way
  uint64_t unanswered_bytes = 0;    // results to come for what was pushed
  uint64_t received_bytes = 0;      // payload of replies
  uint64_t received_parts = 0;
  uint64_t in_flight_bytes = 0;  // of the credit
  uint64_t queued_parts = 0;     // that wait for credit
  uint64_t retried_parts = 0;    // that are pushed again: the connection broke, or the part moved
  uint64_t lost_servers = 0;     // while training went on
  uint64_t returned_servers = 0;
  StepCounters steps;
  std::vector<PathCounters> paths;
  VanCounters van;
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
  // `timeline` outlives the worker; null: nothing is recorded.
  Worker(const JobDescription& job, int32_t rank, Timeline* timeline = nullptr);
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
  // A known description of a key, see wire/control.h.
  struct Variant {
    TensorDescription tensor;
    std::shared_ptr<const TableEntry> entry;  // null until the coordinator has answered
    // What replaces it from a round on: the tensor, cut again. Null if it stays.
    std::shared_ptr<const TableEntry> new_cut;
    uint64_t first_round_of_new_cut = 0;
    bool is_declared = false;

    // Null until the coordinator has told.
    const std::shared_ptr<const TableEntry>& EntryFor(uint64_t round) const {
      return new_cut != nullptr && round >= first_round_of_new_cut ? new_cut : entry;
    }
  };
  struct Key {
    std::string name;
    std::vector<Variant> variants;
    uint64_t next_round = 0;
    int32_t number = 0;              // see LearnedOrder; 0: not used yet
    std::shared_ptr<Exchange> live;  // at most one round is outstanding (protocol rule 10)
    bool has_failed = false;         // here, in the round before `next_round`, if that has ended
    int64_t ended_ns = 0;            // when that was
    bool is_reported = false;        // the coordinator has been told that its result is here
    std::shared_ptr<Exchange> last;  // the one before, while others may lack its result; else null
    std::shared_ptr<TensorFeedback> feedback;  // as the last exchange used it; null: it has none
    std::unique_ptr<Residual> restored;        // for the next exchange's; see RenewFeedback
    // Parts of a round that the servers would like to have next, before they are there to be
    // pushed. Each once.
    struct {
      uint64_t round = 0;
      std::unordered_set<uint32_t> parts;
      std::vector<uint32_t> in_order;  // in which they were asked for
    } wanted;
  };
  using PartId = std::tuple<uint64_t, uint32_t, uint32_t>;  // key, variant and part

  // One of the connections to a server; each part takes the one with the least on its way.
  struct Path {
    std::shared_ptr<Connection> connection;  // null: broken
    bool was_open = false;                   // to the process that the server is now
    int attempt_life = 0;                    // which life of the server is being connected to
    // The replies whose payloads are arriving; the last one ends first
    // (ConnectionHandler::OnHeader).
    std::vector<PartId> receives;
    // Pushes may be sent: not while it is broken, nor before the server has said what it has.
    bool is_ready = false;
    bool has_broken = false;  // once
    uint64_t bytes_on_the_way = 0;
    uint64_t pushed_bytes = 0;  // these three: see PathCounters
    uint64_t received_bytes = 0;
    uint64_t reconnects = 0;
    std::unique_ptr<Reconnector> reconnector;  // set by Start, then unchanged
  };
  struct ServerLink {
    Endpoint endpoint;
    std::string host;                    // see JobDescription::server_hosts
    std::vector<Path> paths;             // set by Start, then as many
    std::vector<PartTask> parked;        // no path is ready
    std::deque<OutgoingFrame> given_up;  // rounds, for when a path comes again
    std::vector<OutgoingFrame> results;  // that it has been sent, for the same
    bool is_lost = false;                // and training goes on
    int lives = 0;                       // how often it has been started again
    bool was_lost = false;               // once
  };
  // What has to happen once the mutex is free.
  struct Actions;

  // ConnectionHandler, for the connections to servers.
  void OnOpen(const std::shared_ptr<Connection>& connection) override;
  Status OnHeader(Connection& connection, const FrameHeader& header,
                  std::shared_ptr<PayloadSink>* sink) override;
  Status OnFrame(Connection& connection, const FrameHeader& header,
                 std::shared_ptr<PayloadSink> sink) override;
  void OnClosed(Connection& connection, const Status& reason) override;
  void OnWanted(const FrameHeader& header);
  Status OnServersNews(Connection& connection, PayloadSink* sink);
  Status OnArrivalReport(int32_t server, const ArrivalReport& report);

  void PreparePaths();
  Status ConnectToServers();
  Status CheckMayConnect(int32_t server) const;
  // Within so many seconds.
  Status Connect(int32_t server, uint32_t path, double seconds);
  bool CoordinatorIsLost() const;
  bool WasLost(int32_t server) const;
  // The one that the server was in its `life`: how often it had been started again.
  void LoseServer(int32_t server, int life, const Status& reason);
  void OnControl(ControlMessage message);
  void Watch();
  void Fail(const Status& reason, const std::optional<LostPeer>& lost = std::nullopt);
  Status CheckTerms(ExchangeTerms* terms, uint64_t* start_step) const;
  void Begin(const std::shared_ptr<Exchange>& exchange, uint64_t start_step);
  void FinishLocally(const ExchangeRequest& request);
  void OnRelay(const Relay& relay);
  std::unique_ptr<ExchangeTrace> NewTrace(const ExchangeTerms& request, uint64_t round) const;

  // With mutex_ held.
  void NameStraggler(int64_t now);
  int64_t EndOverdue(int64_t now, Actions* actions);
  Status CheckStalls(int64_t now, int64_t oldest_ns, Actions* actions);
  std::string OwedText() const;
  void AnswerStallQuery(const StallQuery& query, Actions* actions);
  std::string StallText(const StallNotice& notice) const;
  std::vector<std::shared_ptr<Exchange>> OldestExchanges() const;
  std::string Doing() const;
  std::vector<WorkerLag> Lags() const;
  std::string LagsText() const;
  Status Refusal() const;
  // Gives the codec its full name. `start_step`: the round it begins with.
  Status ChooseCodec(TensorDescription* tensor, uint64_t* start_step) const;
  // How to send these elements of the tensor in fewer bytes, see codec/narrow.h; null: as they are.
  const BlockCodec* NarrowFormOf(const TensorDescription& tensor, const void* input,
                                 uint64_t elements) const;
  // Before the part is queued.
  void SetNarrow(Exchange* exchange, uint32_t part, const BlockCodec* form);
  Status CheckMayDrop(const TensorDescription& tensor) const;
  Status CheckMayBegin(const Key& key, const TensorDescription& tensor) const;
  void BeginRound(const std::shared_ptr<Exchange>& exchange, Key* key, Actions* actions);
  // With `last` a step's exchanges in forward order are all there.
  void CompleteStep(const Exchange& last);
  int32_t PriorityOf(const Exchange& exchange, uint32_t part) const;
  Key& FindOrAddKey(const std::string& name);
  Variant& FindOrAddVariant(Key& key, const TensorDescription& tensor);
  Variant& DeclaredVariant(Key& key, const TensorDescription& tensor);
  void PlaceAlone(Variant* variant);
  void SendDeclarations(Actions* actions);
  Status OnDeclareReply(DeclareReply reply, Actions* actions);
  void RaiseCredit(const TableEntry& entry);
  // Places and sends the exchange that a key has, unless it must wait: for its placement, or for
  // new cuts.
  void DispatchIfPlaced(Key& key, Actions* actions);
  void HoldRounds(Actions* actions);
  Status OnRetune(Retune retune, Actions* actions);
  void MeasureLink(uint64_t taken_in, Actions* actions);
  void Dispatch(const std::shared_ptr<Exchange>& exchange, Actions* actions);
  void Pump(Actions* actions);
  void SendPush(PartTask task, Actions* actions);
  // The part has been answered, or what was sent of it is void.
  void ExpectNoAnswer(Exchange* exchange, uint32_t part);
  bool MayGoOnWithout(int32_t server) const;
  void OnServerLost(const ServerLost& lost, Actions* actions);
  Status OnServerBack(const ServerBack& back, Actions* actions);
  bool IsMoving(const Exchange& exchange, uint32_t part) const;
  const PartPlacement* FindPlace(const FrameHeader& header) const;
  void HoldPartsIfClosed(Actions* actions);
  PartsHeld::Part HeldPart(uint64_t id, const Key& key, uint32_t part) const;
  Status OnPartsMoved(const PartsMoved& moved, Actions* actions);
  // An exchange that has ended well, in place of the one before.
  void Keep(const std::shared_ptr<Exchange>& exchange, Key* key, Actions* actions);
  void PushAgain(const std::shared_ptr<Exchange>& exchange, uint32_t version);
  void SendResult(const PartsMoved::Part& part, Actions* actions);
  void MoveWithdrawals(Actions* actions);
  void ReportResults(int64_t now, Actions* actions);
  void OnResultsHeld(const ResultsHeld& all_have, Actions* actions);
  void DropResults(Key& key, int32_t server, const FrameHeader& reply, Actions* actions);
  void GiveUp(int32_t server, OutgoingFrame withdrawal, Actions* actions);
  void ReturnCredit(const Connection& from, uint64_t bytes);
  void NoteProgress(const Connection& connection);
  Path* FindPath(const Connection& connection);
  // Pushes may go this way from now on, and what waited for it does.
  void Use(ServerLink* server, Path* path, Actions* actions);
  ResumeQuery UnansweredOn(int32_t server, uint32_t path) const;
  Status OnResumeAnswer(Connection& connection, const ResumeAnswer& answer, Actions* actions);
  // The exchange that a reply is for; null if it has ended meanwhile. An error if there can be no
  // such reply.
  Status FindReplied(Connection& connection, const FrameHeader& header,
                     std::shared_ptr<Exchange>* exchange);
  Status FinishPart(const std::string& server, const std::shared_ptr<Exchange>& exchange,
                    const FrameHeader& header, PayloadSink* sink, Actions* actions);
  void Finish(const std::shared_ptr<Exchange>& exchange, const Status& status, Actions* actions);
  void CountStart(int64_t now_ns);
  void CountEnd(bool well, int64_t now_ns);
  void Withdraw(const std::shared_ptr<Exchange>& exchange, const Status& reason, Actions* actions);
  void Revoke(const Exchange& exchange, Actions* actions);
  void FinishAll(const Status& reason, Actions* actions);

  const JobDescription job_;
  const int32_t rank_;
  const bool local_;                 // one worker, no server
  const bool can_be_narrow_;         // contributions, see codec/narrow.h
  std::atomic<bool> may_be_narrow_;  // once links are known to be slower than kFastLink
  const bool keeps_results_;         // for when a server is lost
  Timeline* const timeline_;
  std::unique_ptr<Van> van_;
  std::unique_ptr<CoordinatorLink> coordinator_;
  PeriodicThread watch_;

  mutable std::mutex mutex_;  // guards all below
  std::condition_variable goodbye_answered_;
  std::vector<ServerLink> servers_;
  uint64_t unsent_bytes_ = 0;  // see Connection::LimitUnsent; 0: as it is
  PartQueue queue_;
  uint32_t held_version_ = 0;  // of the PartsHeld that is due; 0: none is
  std::set<PartId> moving_;    // from servers that live, until PartsMoved
  // The third step has begun: now links can be measured. In the first one connections are made,
  // memory is allocated, and TensorFlow tries algorithms on the GPU; in the first two servers
  // allocate.
  bool repeats_ = false;
  std::unique_ptr<LinkMeter> link_meter_;  // null: nothing to measure, or done
  bool holds_rounds_ = false;              // exchanges are not placed: new cuts are to come
  bool is_tuned_ = false;
  std::unordered_map<std::string, std::unique_ptr<Key>> keys_by_name_;
  std::unordered_map<uint64_t, Key*> keys_;  // those that the coordinator knows
  std::vector<TensorDescription> undeclared_;
  std::vector<TensorDescription> declaring_;  // what declare_request_ asks for
  uint64_t declare_request_ = 0;              // the request that is on the way; 0: none
  uint64_t next_request_ = 1;
  LearnedOrder order_;
  std::shared_ptr<WorkerCompanion> companion_;
  std::vector<Relay> relayed_;  // before there was a companion
  struct {
    const Key* key = nullptr;
    uint64_t round = 0;
    int64_t ns = 0;
  } last_ended_;  // exchange
  int64_t next_stall_report_ns_ = 0;
  int64_t last_stall_notice_ns_ = 0;  // when it was in the log
  Status failure_;
  std::optional<LostPeer> lost_peer_;
  bool stopping_ = false;
  bool coordinator_is_lost_ = false;  // says a server
  bool left_ = false;                 // the coordinator has answered our goodbye
  WorkerCounters counters_;
  StepMeter step_meter_;
  StragglerWatch straggler_watch_;
  int64_t exchanging_since_ns_ = 0;               // while an exchange is in flight
  std::vector<std::vector<WorkerLag>> arrivals_;  // by server and rank, as they reported last
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_WORKER_WORKER_H_

// PartRounds: the rounds of one part of a tensor: who has pushed, who waits, when a round is
// complete or has failed.
//
// The rounds of a part are shared by all variants of its tensor, so that workers which disagree
// about shape, dtype or operation meet here; sums and buffers belong to the variant
// (server/aggregation.h).
//
// Every push is answered with one reply: the result, or an error. At most one round is open. A push
// of a newer round ends an open one with an error for all who wait in it: it can come only from a
// worker for which the older round has failed, here or at another part's server.
//
// Where a tensor has backup workers, a round may end before all have pushed it. Who comes later, or
// is still sending, gets the result then; what it sends is dropped whole. Nobody gets further
// behind than `max_lag` rounds: the open one waits for who would (server/round_history.h).
//
// A connection may break and come again (server/worker_connection.h): a push that was cut off goes
// on where it was, and the reply to a worker can be made again until that worker pushes again.
//
// A push costs the same with any number of workers (protocol rule 30): what it depends on is
// counted, and is looked up among all of them once in a round.
//
// A part may come from a server that is lost. Its rounds go on where they were there; the result of
// the last one comes from a worker that has it, for those who have not (part_rounds_failover.cc).
#ifndef TF_BYTEPS_CC_SERVER_PART_ROUNDS_H_
#define TF_BYTEPS_CC_SERVER_PART_ROUNDS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/lowest_round.h"
#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/server/aggregation.h"
#include "cc/server/counted_sink.h"
#include "cc/server/round_history.h"
#include "cc/server/served_part.h"

namespace byteps {

// Thread-safe. Replies are handed out, not sent, so that no call into a Van happens under the
// mutex.
class PartRounds : public ServedPart {
 public:
  explicit PartRounds(Options options);

  Status Begin(const Push& push, std::shared_ptr<PayloadSink>* sink,
               std::vector<Reply>* replies) override;
  Outcome End(const Push& push, std::vector<Reply>* replies) override;
  Status Resume(const std::shared_ptr<WorkerConnection>& from, uint64_t round,
                std::optional<uint64_t>* received_bytes, std::vector<Reply>* replies) override;
  void Withdraw(int32_t worker, const TableEntry& entry, uint64_t round, const Status& status,
                std::vector<Reply>* replies) override;
  void GoOnFrom(uint64_t next_round, int32_t result_from) override;
  Status BeginResult(Push* push, std::shared_ptr<PayloadSink>* sink) override;
  void EndResult(Push* push, std::vector<Reply>* replies) override;
  void OnResultsHeld(uint64_t next_round) override;
  void OnLost(std::vector<Reply>* replies) override;
  void OnDeparted(const std::vector<DepartedWorker>& departed,
                  std::vector<Reply>* replies) override;

 private:
  enum class State {
    kAbsent,
    kReceiving,  // the header is here, the payload not all
    kWaiting,    // for the reply
    kAnswered,   // with an error
  };
  struct Contribution {
    State state = State::kAbsent;
    const TableEntry* entry = nullptr;
    std::shared_ptr<WorkerConnection> from;
    int32_t priority = 0;
    uint32_t placement_version = 0;
    int64_t begin_time_ns = 0;
    int64_t receive_time_ns = 0;
    std::shared_ptr<CountedSink> sink;  // kReceiving; null if nothing is taken in
  };
  // What is known of a worker's newest push, from one round to the next. There is one for each part
  // and worker.
  struct Standing {
    const WorkerConnection* from = nullptr;  // they live as long as the service
    uint32_t generation = 0;                 // see Reply; of `ended_`'s reply; 0: it has none
    uint32_t placement_version = 0;
    int32_t priority = 0;
    bool was_cut_off = false;  // the worker may go on with it
  };
  // A round that has ended, with the same result for all.
  struct Ended {
    uint64_t round = 0;
    const TableEntry* entry = nullptr;
    AggregationResult result;
  };
  // Rounds that a worker has given up.
  struct Withdrawn {
    int32_t worker = -1;
    uint64_t first = 0, last = 0;
    Status reason;
  };
  // One that ended on a server that is lost.
  struct Inherited {
    Ended ended;
    int32_t from = -1;  // the worker that sends its result
    bool is_here = false;
    std::vector<Contribution> waiting;  // for it
  };
  // Why the open round cannot complete. Those who push it later are told too, with themselves in
  // the text.
  enum class Cause { kNone, kDisagreement, kDeparted, kOther };

  void Admit(const Push& push) BYTEPS_REQUIRES(mutex_);
  Status CheckOrder(const Push& push) const BYTEPS_REQUIRES(mutex_);
  void OpenRound(uint64_t round, int32_t by, std::vector<Reply>* replies) BYTEPS_REQUIRES(mutex_);
  void CheckRound(const Push& push, std::vector<Reply>* replies) BYTEPS_REQUIRES(mutex_);
  Status StartAggregation(const Push& push, std::shared_ptr<PayloadSink>* sink)
      BYTEPS_REQUIRES(mutex_);
  bool CanComplete() const BYTEPS_REQUIRES(mutex_);
  std::vector<int32_t> Lacking(const TableEntry& entry) const BYTEPS_REQUIRES(mutex_);
  Status EncodeSum(AggregationResult* result) const BYTEPS_REQUIRES(mutex_);
  void CompleteRound(Outcome* outcome, std::vector<Reply>* replies) BYTEPS_REQUIRES(mutex_);
  void EndLate(const Push& push, Outcome* outcome, std::vector<Reply>* replies)
      BYTEPS_REQUIRES(mutex_);
  void FailRound(Cause cause, const Status& failure, std::vector<Reply>* replies)
      BYTEPS_REQUIRES(mutex_);
  void CloseRound() BYTEPS_REQUIRES(mutex_);
  Status DescribeFailure() const BYTEPS_REQUIRES(mutex_);
  Status DescribeDeparted() const BYTEPS_REQUIRES(mutex_);
  Status FailureOf(uint64_t round) const BYTEPS_REQUIRES(mutex_);
  Status DescribeWithdrawal(uint64_t round) const BYTEPS_REQUIRES(mutex_);
  std::string Title(uint64_t round) const BYTEPS_REQUIRES(mutex_);
  std::string WhoSentWhat() const BYTEPS_REQUIRES(mutex_);
  std::string Contributors() const BYTEPS_REQUIRES(mutex_);
  bool HasContributions() const BYTEPS_REQUIRES(mutex_) { return begun_ > 0; }
  void Name(const Contribution& contribution, int32_t worker) BYTEPS_REQUIRES(mutex_);
  void OnOneDeparted(const DepartedWorker& departed, std::vector<Reply>* replies)
      BYTEPS_REQUIRES(mutex_);
  bool Contributes(const TableEntry& entry, int32_t worker) const BYTEPS_REQUIRES(mutex_);
  bool IsOpen(uint64_t round) const BYTEPS_REQUIRES(mutex_) {
    return round == round_ && cause_ == Cause::kNone;
  }
  uint64_t Watermark(const TableEntry& entry) const BYTEPS_REQUIRES(mutex_);
  void NotePush(const TableEntry& entry, int32_t worker, uint64_t round) BYTEPS_REQUIRES(mutex_);
  bool IsInherited(uint64_t round) const BYTEPS_REQUIRES(mutex_);
  void AnswerInherited(Contribution late, std::vector<Reply>* replies) BYTEPS_REQUIRES(mutex_);
  void FailInherited(const Status& status, std::vector<Reply>* replies) BYTEPS_REQUIRES(mutex_);
  Reply InheritedReply(const Contribution& to) const BYTEPS_REQUIRES(mutex_);
  Reply EndedReply(const Contribution& to, const Ended& ended) const BYTEPS_REQUIRES(mutex_);
  Status GoOn(const Push& push, std::shared_ptr<PayloadSink>* sink) BYTEPS_REQUIRES(mutex_);
  void HandOut(Reply reply, std::vector<Reply>* replies) BYTEPS_REQUIRES(mutex_);
  Reply NewReply(const Contribution& to, uint64_t round) const BYTEPS_REQUIRES(mutex_);
  Reply ResultReply(const Contribution& to, uint64_t round, const AggregationResult& result) const
      BYTEPS_REQUIRES(mutex_);
  Reply ErrorReply(const Contribution& to, uint64_t round, const Status& status) const
      BYTEPS_REQUIRES(mutex_);

  const Options options_;
  Mutex mutex_;
  uint64_t round_ BYTEPS_GUARDED_BY(mutex_) = 0;        // the open round; those below have ended
  uint64_t first_round_ BYTEPS_GUARDED_BY(mutex_) = 0;  // see GoOnFrom
  std::vector<Contribution> contributions_
      BYTEPS_GUARDED_BY(mutex_);  // to the open round, by rank; empty: none has begun
  int32_t begun_ BYTEPS_GUARDED_BY(mutex_) = 0;  // how many are not absent
  int32_t waiting_ BYTEPS_GUARDED_BY(mutex_) = 0;
  std::vector<int32_t> named_
      BYTEPS_GUARDED_BY(mutex_);  // of those that have begun: who is told of in texts
  Cause cause_ BYTEPS_GUARDED_BY(mutex_) = Cause::kNone;
  int32_t departed_rank_ BYTEPS_GUARDED_BY(mutex_) = -1;  // kDeparted
  Status failure_ BYTEPS_GUARDED_BY(mutex_);              // kOther
  Status last_failure_
      BYTEPS_GUARDED_BY(mutex_);  // how round last_failed_round_ ended, for those who push it late
  uint64_t last_failed_round_ BYTEPS_GUARDED_BY(mutex_) = 0;
  std::unique_ptr<Withdrawn> withdrawn_ BYTEPS_GUARDED_BY(mutex_);  // the newest; null: none
  std::vector<Standing> workers_ BYTEPS_GUARDED_BY(mutex_);         // by rank
  // How many rounds each has begun to push: the newest, plus one. By rank, and, for tensors that
  // are per_host, by host.
  LowestRound pushed_rounds_ BYTEPS_GUARDED_BY(mutex_);
  std::unique_ptr<LowestRound> pushed_rounds_by_host_ BYTEPS_GUARDED_BY(mutex_);
  std::unique_ptr<Ended> ended_
      BYTEPS_GUARDED_BY(mutex_);  // the newest round; null: all have its result
  std::map<int32_t, Reply> kept_
      BYTEPS_GUARDED_BY(mutex_);  // other replies to workers' newest pushes, by rank
  RoundHistory history_ BYTEPS_GUARDED_BY(mutex_);
  std::unique_ptr<Inherited> inherited_
      BYTEPS_GUARDED_BY(mutex_);  // until nobody can lack it; null: none
  std::unique_ptr<Aggregation> aggregation_ BYTEPS_GUARDED_BY(mutex_);
  std::shared_ptr<BufferPool> encoded_sums_
      BYTEPS_GUARDED_BY(mutex_);  // null: they are sent as they are
  const TableEntry* aggregation_entry_ BYTEPS_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_SERVER_PART_ROUNDS_H_

// RoundsState: the rounds of one part of a tensor: who has pushed, who waits, when a round is
// complete or has failed.
//
// The rounds of a part are shared by all variants of its tensor, so that workers which disagree
// about shape, dtype or operation meet here; sums and buffers belong to the variant
// (server/state/part_sum.h).
//
// Every push is answered with one reply: the result, or an error. At most one round is open. A push
// of a newer round ends an open one with an error for all who wait in it: it can come only from a
// worker for which the older round has failed, here or at another part's server.
//
// Where a tensor has backup workers, a round may end before all have pushed it. Who comes later, or
// is still sending, gets the result then; what it sends is dropped whole. Nobody gets further
// behind than `max_lag` rounds, or one round with the sums of a quorum: the open one waits for who
// would (server/state/round_history.h). With a grace window, a round that could end waits for more
// (server/state/grace_window.h), and who was not in the last round is waited for in any case.
//
// A worker may have joined: it has no more data, and sums end without it, as if it had pushed zeros
// (rounds_joins.cc).
//
// A connection may break and come again (server/worker_connection.h): a push that was cut off goes
// on where it was, and the reply to a worker can be made again until that worker pushes again.
//
// A tensor's name may say that only some workers take part, a process set (base/members.h): its
// rounds are theirs, and nobody else is waited for, missed or told.
//
// A push costs the same with any number of workers (protocol rule 30): what it depends on is
// counted, and is looked up among all of them once in a round.
//
// A part may come from a server that is lost. Its rounds go on where they were there; the result of
// the last one, or of the last two of a quorum, comes from a worker that has it, for those who have
// not (rounds_failover.cc).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/lowest_round.h"
#include "cc/base/members.h"
#include "cc/base/status.h"
#include "cc/base/transition.h"
#include "cc/server/state/grace_window.h"
#include "cc/server/state/part_sum.h"
#include "cc/server/state/round_history.h"
#include "cc/server/state/served_push.h"
#include "cc/wire/control.h"

namespace byteps {

// Not thread-safe: server/part_rounds.h has a mutex, and tells it what happens. Replies are handed
// out, not sent.
class RoundsState {
 public:
  // How far a worker's contribution to the open round is. docs/states.md draws this.
  enum class State {
    kAbsent,
    kReceiving,  // the header is here, the payload not all
    kWaiting,    // for the reply
    kAnswered,   // with an error
  };
  // "round fails": a contribution that is still arriving is answered at its end. "round ends": the
  // next one is open, in which nobody has pushed yet.
  static constexpr Transition<State> kTransitions[] = {
      {State::kAbsent, "Begin", State::kReceiving},
      {State::kReceiving, "End", State::kWaiting},
      {State::kReceiving, "End after round fails", State::kAnswered},
      {State::kReceiving, "round ends", State::kAbsent},
      {State::kWaiting, "round fails", State::kAnswered},
      {State::kWaiting, "round ends", State::kAbsent},
      {State::kAnswered, "round ends", State::kAbsent},
  };
  // What happens comes with who has departed (null: nobody), and when.
  struct Event {
    const Departed* departed = nullptr;
    int64_t now_ns = 0;     // since 1970: for timelines, and for how late a worker is
    int64_t steady_ns = 0;  // of a clock that never jumps: for grace windows
  };

  // Both outlive it.
  RoundsState(const PartOptions& options, PartSum* sum);

  // See ServedPart (server/served_part.h). Texts of errors that are returned go on after the
  // worker's name.
  Status Begin(const Push& push, const Event& event, std::shared_ptr<PayloadSink>* sink,
               std::vector<Reply>* replies);
  PushOutcome End(const Push& push, const Event& event, std::vector<Reply>* replies);
  // PushOutcome::deadline_ns is here.
  PushOutcome OnTime(const Event& event, std::vector<Reply>* replies);
  PushOutcome OnJoined(const Event& event, std::vector<Reply>* replies);
  // Over the connection of this generation.
  Status Resume(const std::shared_ptr<WorkerConnection>& from, int32_t worker, uint64_t generation,
                uint64_t round, std::optional<uint64_t>* received_bytes,
                std::vector<Reply>* replies);
  void Withdraw(int32_t worker, const TableEntry& entry, uint64_t round, const Status& status,
                const Event& event, std::vector<Reply>* replies);
  void GoOnFrom(const PartsMoved::Part& agreed);
  // Whether the result that arrives is needed. An error as in ServedPart::BeginResult.
  Status CheckResult(const Push& push, bool* is_needed) const;
  void EndResult(const Push& push, AggregationResult result, std::vector<Reply>* replies);
  void OnResultProgress(uint64_t next_round);
  void OnLost(const Event& event, std::vector<Reply>* replies);
  void OnDeparted(const std::vector<DepartedWorker>& departed, const Event& event,
                  std::vector<Reply>* replies);

  uint64_t open_round() const { return round_; }
  State state(int32_t worker) const {
    return HasContributions() ? contributions_[worker].state : State::kAbsent;
  }

 private:
  struct Contribution {
    State state = State::kAbsent;
    const TableEntry* entry = nullptr;
    std::shared_ptr<WorkerConnection> from;
    int32_t worker = -1;      // its rank
    uint64_t generation = 0;  // see Reply
    int32_t priority = 0;
    uint32_t placement_version = 0;
    int64_t begin_time_ns = 0;
    int64_t receive_time_ns = 0;
    Incoming incoming;  // kReceiving; nothing if nothing is taken in

    // Who sends what, and when it has begun.
    void Fill(const Push& push);
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
  // One that ended on a server that is lost, and whose result is to come from a worker.
  struct Inherited {
    Ended ended;
    int32_t from = -1;  // the worker that sends its result
    bool is_here = false;
    std::vector<Contribution> waiting;  // for it
  };
  // Why the open round cannot complete. Those who push it later are told too, with themselves in
  // the text.
  enum class Cause { kNone, kDisagreement, kDeparted, kOther };

  void Admit(const Push& push);
  Status CheckOrder(const Push& push) const;
  void OpenRound(uint64_t round, int32_t by, std::vector<Reply>* replies);
  void CheckRound(const Push& push, std::vector<Reply>* replies);
  int32_t FindDeparted(const TableEntry& entry) const;
  bool HasJoined(int32_t worker) const {
    return departed_ != nullptr && departed_->joined.count(worker) > 0;
  }
  int32_t CountAbsentJoined() const;
  Status CheckJoined(const TableEntry& entry) const;
  bool HasFailedAndJoined(int32_t worker) const;
  bool CanComplete() const;
  bool MayEnd(int64_t steady_ns, PushOutcome* outcome);
  bool IsMissed(int32_t worker) const;
  bool HasGrace() const { return summed_->tensor.grace_ms != kNoGrace; }
  std::vector<int32_t> Lacking(const TableEntry& entry) const;
  void CompleteRound(PushOutcome* outcome, std::vector<Reply>* replies);
  void EndLate(const Push& push, const Event& event, PushOutcome* outcome,
               std::vector<Reply>* replies);
  void FailRound(Cause cause, const Status& failure, std::vector<Reply>* replies);
  void CloseRound();
  Status DescribeFailure() const;
  Status DescribeDeparted() const;
  Status FailureOf(uint64_t round) const;
  Status DescribeWithdrawal(uint64_t round) const;
  std::string Title(uint64_t round) const;
  std::string DescribeContributions() const;
  std::string Contributors() const;
  bool HasContributions() const { return begun_ > 0; }
  void Name(const Contribution& contribution, int32_t worker);
  void OnOneDeparted(const DepartedWorker& departed, std::vector<Reply>* replies);
  bool Contributes(const TableEntry& entry, int32_t worker) const;
  bool IsOpen(uint64_t round) const { return round == round_ && cause_ == Cause::kNone; }
  uint64_t Watermark(const TableEntry& entry) const;
  void NotePush(const TableEntry& entry, int32_t worker, uint64_t round);
  Inherited* FindInherited(uint64_t round);
  void AnswerInherited(Inherited* inherited, Contribution late, std::vector<Reply>* replies);
  void FailInherited(Inherited* inherited, const Status& status, std::vector<Reply>* replies);
  Reply InheritedReply(const Inherited& inherited, const Contribution& to) const;
  Reply EndedReply(const Contribution& to, const Ended& ended) const;
  Status GoOn(const Push& push, std::shared_ptr<PayloadSink>* sink);
  void HandOut(Reply reply, std::vector<Reply>* replies);
  Reply NewReply(const Contribution& to, uint64_t round) const;
  Reply ResultReply(const Contribution& to, uint64_t round, const AggregationResult& result) const;
  Reply ErrorReply(const Contribution& to, uint64_t round, const Status& status) const;

  const PartOptions& options_;
  const uint64_t key_;
  const Members members_;
  PartSum& sum_;
  const Departed* departed_ = nullptr;       // of the event that is being processed
  uint64_t round_ = 0;                       // the open round; those below have ended
  uint64_t first_round_ = 0;                 // see GoOnFrom
  std::vector<Contribution> contributions_;  // to the open round, by rank; empty: none has begun
  int32_t begun_ = 0;                        // how many are not absent
  int32_t waiting_ = 0;
  std::vector<int32_t> named_;  // of those that have begun: who is told of in texts
  Cause cause_ = Cause::kNone;
  int32_t departed_rank_ = -1;  // kDeparted
  Status failure_;              // kOther
  Status last_failure_;         // how round last_failed_round_ ended, for those who push it late
  uint64_t last_failed_round_ = 0;
  std::unique_ptr<Withdrawn> withdrawn_;  // the newest; null: none
  std::vector<Standing> workers_;         // by rank
  // How many rounds each has begun to push: the newest, plus one. By rank, and, for tensors that
  // are per_host, by host.
  LowestRound pushed_rounds_;
  std::unique_ptr<LowestRound> pushed_rounds_by_host_;
  std::unique_ptr<Ended> ended_;   // the newest round; null: all have its result
  std::map<int32_t, Reply> kept_;  // other replies to workers' newest pushes, by rank
  RoundHistory history_;
  std::vector<int32_t> missed_;  // who was not in the last round that ended, by rank
  GraceWindow grace_;
  std::vector<Inherited> inherited_;  // until nobody can lack them; at most two
  bool is_heir_ = false;              // who was in the last round is known to a server that is lost
  const TableEntry* summed_ = nullptr;  // the variant that sum_ is of; null: of none yet
};

}  // namespace byteps

// Exchanges: the tensors that callers give, from their beginning to their end.
//
// At most one exchange of each name is in flight (protocol rule 10).
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/job.h"
#include "cc/base/training_rounds.h"
#include "cc/worker/state/effects.h"
#include "cc/worker/state/exchange.h"
#include "cc/worker/state/key_table.h"
#include "cc/worker/state/lifecycle.h"
#include "cc/worker/state/paths.h"
#include "cc/worker/state/step_meter.h"
#include "cc/worker/state/transmission.h"
#include "cc/worker/state/worker_counters.h"

namespace byteps {

// Not thread-safe.
class Exchanges {
 public:
  // Makes error feedback that of a tensor as it is placed: RenewFeedback of
  // worker/tensor_feedback.h.
  using Renew = std::function<void(const TableEntry& entry, std::shared_ptr<TensorFeedback>*,
                                   std::unique_ptr<Residual>* restored)>;
  struct Options {
    bool is_alone = false;       // one worker, no server
    bool keeps_results = false;  // for when a server is lost
    Renew renew_feedback;
  };

  // All of them outlive it.
  Exchanges(const JobDescription& job, int32_t rank, const Lifecycle& lifecycle, KeyTable* keys,
            Transmission* transmission, Options options);

  // ---- events

  // An error if it may not begin. `start_step`: the round that the tensor's codec begins with,
  // counted anew after Leave.
  Status Begin(const std::shared_ptr<Exchange>& exchange, uint64_t start_step, Effects* effects);
  // A job of one worker: has begun, and ended.
  Status BeginAndEnd(const std::string& name, const Moment& now);
  // A part of an exchange by parts is ready, after `placed`.
  void OnPartReady(const std::shared_ptr<Exchange>& exchange, PartRequest request,
                   const BlockCodec* narrow, Effects* effects);
  // Nothing happens if it has ended.
  void Finish(const std::shared_ptr<Exchange>& exchange, const Status& status, Effects* effects);
  void FinishAll(const Status& reason, ServerLinks* servers, Effects* effects);
  // Tells servers of rounds that have been given up, then places and sends the exchange that a key
  // has, unless that must wait: for its placement, or for new cuts.
  void DispatchIfPlaced(KeyTable::Key& key, Effects* effects);
  // The coordinator places nothing by this description: what waits for it ends.
  void OnRefused(KeyTable::Key& key, const TensorDescription& refused, const Status& reason,
                 Effects* effects);
  // What has been declared since; nothing while a request is in flight.
  void SendDeclarations(Effects* effects);

  // New cuts are to come: nothing is placed until they are there.
  void PausePlacement() { is_paused_ = true; }
  void ResumePlacement(Effects* effects);

  void NoteInput(const Exchange& exchange, const Moment& now);
  void NoteBatch(int64_t waited_ns, uint64_t samples, const Moment& now) {
    step_meter_.NoteBatch(waited_ns, samples, now.ns);
  }

  // ---- workers that part within a training and meet again
  //
  // One leaves it because of an error that its program catches; the others wait for it, at some of
  // the training's tensors. So it gives up all rounds of these tensors that the training could yet
  // have, and so do the others, who leave it by the error that they get. What each exchanges next
  // has the same round on all, although nobody knows how far the others had come. Where workers
  // meet they tell each other their rounds, and all continue from the highest.

  // By name, the round that each tensor's next exchange will have. Not of stores, whose rounds are
  // each worker's own.
  std::map<std::string, uint64_t> NextRounds() const;
  // As if an exchange had been begun and cancelled, but that nothing is counted. If the round
  // before is in flight, or nothing has been placed under the name, servers are told once that has
  // changed.
  void GiveUpRounds(const std::vector<std::string>& names, const std::string& reason,
                    Effects* effects);
  // The next round of these tensors is the first that a training after the first `trainings` ones
  // can have; `trainings` is the same on all workers, and counts the one that is left. Those before
  // are given up. The others are told by TellLeft, or when the next exchange begins, of whatever
  // name.
  void Leave(const std::vector<std::string>& names, uint64_t trainings, const std::string& reason);
  void TellLeft(Effects* effects);
  // How many trainings there have been, as Leave says.
  uint64_t training() const { return training_; }
  // The next round of each of these begins a store anew (base/store_rounds.h). All workers call it
  // between two exchanges of the same names.
  void BeginStores(const std::vector<std::string>& names);

  // Whether a server has asked for the tensor's next round, which has not begun here.
  bool IsRequested(const std::string& name) const;
  // Parts have new owners, which do not know that nobody need wait for this worker at stores.
  void LeaveStoresAgain(Effects* effects);

  // What to say when this worker has no more data: which rounds it has failed in.
  Joined Join() const;
  // Unless a tensor is further already.
  void SkipToRounds(const std::map<std::string, uint64_t>& rounds);

  // ---- what there is to know

  const StepCounters& steps() const { return step_meter_.counters(); }
  const EndedExchange& last_ended() const { return last_ended_; }
  void AddTo(StateCounters* counters, int64_t now_ns) const;

 private:
  // Whether anybody can wait for this worker under a name: not where it is no member, nor where the
  // name is none.
  bool CanBeAwaited(const std::string& name) const;
  Status CheckMayBegin(const KeyTable::Key& key, const TensorDescription& tensor) const;
  void Dispatch(const std::shared_ptr<Exchange>& exchange, const KeyTable::Key& key,
                Effects* effects);
  // Keeps it for SendWithdrawals.
  static void Withdraw(KeyTable::Key& key, uint64_t round, const Status& reason);
  // Those of a key that need not wait for a place, for new cuts or for the round before.
  void SendWithdrawals(KeyTable::Key& key, Effects* effects);
  // One that has ended well, in place of the one before.
  void Keep(const std::shared_ptr<Exchange>& exchange, KeyTable::Key* key, Effects* effects) const;
  void CountStart(const Moment& now);
  void CountEnd(bool well, const Moment& now);

  const JobDescription& job_;
  const int32_t rank_;
  const Lifecycle& lifecycle_;
  KeyTable* const keys_;
  Transmission* const transmission_;
  const Options options_;
  bool is_paused_ = false;
  uint64_t training_ = 0;
  std::map<std::string, std::string> left_;  // reasons, by the tensors of which TellLeft is to tell
  StepMeter step_meter_;
  EndedExchange last_ended_;
  uint64_t started_ = 0, ended_ = 0, failed_ = 0;
  int64_t exchanging_ns_ = 0;        // with at least one exchange in flight
  int64_t exchanging_since_ns_ = 0;  // while one is
};

}  // namespace byteps

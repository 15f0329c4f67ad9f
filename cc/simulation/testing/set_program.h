// SetProgram: what workers do in a SimulatedJob with process sets (base/members.h), in which they
// exchange tensors of all kinds among some of them, or all; or in one with joins
// (server/state/rounds_joins.cc), in which a worker that has no more rounds joins, until all have,
// and all go on.
//
// Checked of each exchange: it ends once, and the result is that of its own round and of those who
// take part, or an error where there must be one, or may be. It ends soon after the last of those
// who take part has begun: nobody else is waited for, and some sleep long. Who is no member, or has
// joined, exchanges nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/simulation/testing/event_schedule.h"
#include "cc/simulation/testing/job_program.h"
#include "cc/simulation/testing/program_exchange.h"
#include "cc/simulation/testing/set_exchange.h"
#include "cc/simulation/testing/set_phase.h"
#include "cc/simulation/testing/set_tensor.h"
#include "cc/simulation/testing/simulated_gpu.h"
#include "cc/simulation/testing/simulation_outcome.h"
#include "cc/worker/worker.h"

namespace byteps {

class SetProgram final : public JobProgram {
 public:
  static constexpr int32_t kMostWorkers = 5;

  // `gpu_of`: a worker's; null if it has none.
  SetProgram(EventSchedule* schedule, int32_t num_workers, bool joins, const JobFaults* faults,
             SimulationOutcome* outcome, std::function<SimulatedGpu*(int32_t rank)> gpu_of)
      : schedule_(*schedule),
        num_workers_(num_workers),
        joins_(joins),
        faults_(*faults),
        outcome_(*outcome),
        gpu_of_(std::move(gpu_of)) {
    const size_t count = 2 + schedule_.Draw(3);
    for (size_t i = 0; i < count; ++i)
      tensors_.push_back(SetTensor::Drawn(schedule, i, num_workers, joins ? 0.4 : 0.7));
    const size_t phases = joins ? 1 + schedule_.Draw(2) : 1;
    for (size_t i = 0; i < phases; ++i)
      phases_.push_back(SetPhase::Drawn(schedule, tensors_, num_workers, joins));
    pause_ns_ = static_cast<int64_t>(schedule_.Draw(schedule_.Chance(0.3) ? 20000 : 1000)) * 1000;
    is_loose_ = schedule_.Chance(0.5);
    declares_ = schedule_.Chance(0.3);
    if (!joins && schedule_.Chance(0.3)) {
      sleeper_ = static_cast<int32_t>(schedule_.Draw(num_workers - 1));
      sleeps_before_ = static_cast<int>(schedule_.Draw(2));
    }
    sent_.resize(num_workers);
  }

  bool Run(Worker* worker, int32_t rank) override {
    if (declares_) Declare(worker, rank);
    for (size_t phase = 0; phase < phases_.size(); ++phase) {
      if (!RunPhase(worker, rank, phase)) return false;
      if (joins_ && !Join(worker, rank, phase)) return false;
    }
    return true;
  }

  void CheckEnd(int32_t rank) override {
    for (const auto& sent : sent_[rank]) {
      if (sent->calls != 1)
        Fail(rank, *sent, "has ended " + std::to_string(sent->calls) + " times");
      if (sent->status.ok()) CheckResult(rank, *sent);
    }
  }

  uint64_t ResultBytes() const override {
    uint64_t bytes = tensors_.size() * sizeof(int64_t);  // where all meet after a join
    for (const SetTensor& tensor : tensors_) bytes += tensor.RoundBytes();
    return bytes;
  }

 private:
  static constexpr int64_t kMostRounds = 1000;            // of a phase
  static constexpr int64_t kSleepNanos = 90'000'000'000;  // of who is not to be waited for
  static constexpr int64_t kSoonNanos = 60'000'000'000;   // with all faults that may happen
  using Ranks = SetTensor::Ranks;

  // How far the members are with a round of a tensor.
  struct Begun {
    size_t members = 0;
    int64_t last_ns = 0;
  };

  const SetPhase& PhaseOf(const SetExchange& sent) const {
    return phases_[sent.round / kMostRounds];
  }
  static int RoundOf(const SetExchange& sent) { return static_cast<int>(sent.round % kMostRounds); }

  void Declare(Worker* worker, int32_t rank) const {
    std::vector<TensorDescription> own;
    for (const SetTensor& tensor : tensors_) {
      if (tensor.is_of(rank)) own.push_back(tensor.description);
    }
    worker->Declare(std::move(own));
  }

  bool RunPhase(Worker* worker, int32_t rank, size_t number) {
    const SetPhase& phase = phases_[number];
    std::vector<std::shared_ptr<SetExchange>> live(tensors_.size());
    for (int round = 0; round < phase.rounds[rank]; ++round) {
      if (rank == sleeper_ && round == sleeps_before_) schedule_.Sleep(kSleepNanos);
      std::vector<size_t> order(tensors_.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      for (size_t i = order.size(); i > 1; --i)
        std::swap(order[i - 1], order[schedule_.Draw(i - 1)]);
      for (const size_t i : order) {
        if (schedule_.Chance(0.3)) schedule_.Sleep(static_cast<int64_t>(schedule_.Draw(2000000)));
        if (!tensors_[i].is_of(rank)) {
          const bool may_ask = tensors_[i].description.kind != ExchangeKind::kAllToAll;
          if (may_ask && schedule_.Chance(0.05))
            Refuse(worker, i, StatusCode::kInvalidArgument, "is no member");
          continue;
        }
        const int64_t at = static_cast<int64_t>(number) * kMostRounds + round;
        if (phase.give_up[round][i] == rank) {
          GiveUp(worker, at, i);
        } else {
          if (live[i] != nullptr && !Check(rank, live[i].get())) return false;
          live[i] = Begin(worker, at, i);
        }
      }
      if (!is_loose_ && !CheckAll(rank, &live)) return false;
      if (pause_ns_ > 0) schedule_.Sleep(static_cast<int64_t>(schedule_.Draw(pause_ns_)));
    }
    return CheckAll(rank, &live);
  }

  void NoteBegin(size_t tensor, int64_t at) {
    Begun& begun = begun_[{tensor, at}];
    ++begun.members;
    begun.last_ns = schedule_.NowNanos();
  }

  void GiveUp(Worker* worker, int64_t at, size_t tensor) {
    ++outcome_.given_up_rounds;
    NoteBegin(tensor, at);
    worker->GiveUpRounds({tensors_[tensor].name()}, "the program leaves this round out");
  }

  std::shared_ptr<SetExchange> Begin(Worker* worker, int64_t at, size_t tensor) {
    const SetTensor& what = tensors_[tensor];
    ++outcome_.exchanges;
    if (!Members::Of(what.name()).are_all()) ++outcome_.set_exchanges;
    if (what.description.HasOwnRows()) ++outcome_.row_exchanges;
    if (!what.description.codec.empty()) ++outcome_.coded_sums;
    NoteBegin(tensor, at);
    // The GPUs of a host reduce together; a set may have some of them only, and uses host memory.
    const bool is_of_all = Members::Of(what.name()).are_all();
    auto sent = SetExchange::Begin(
        worker, what, at, [this, tensor, at] { CheckTime(tensor, at); },
        is_of_all ? gpu_of_(worker->rank()) : nullptr);
    if (sent->is_of_gpu) ++outcome_.gpu_exchanges;
    sent_[worker->rank()].push_back(sent);
    return sent;
  }

  // One that is refused at once, and of which the others do not hear.
  void Refuse(Worker* worker, size_t tensor, StatusCode code, const std::string& why) {
    const Status status = SetExchange::Begin(worker, tensors_[tensor], 0, nullptr)->Await();
    if (status.code() == code || faults_.has_lost_worker) return;
    schedule_.Fail("worker " + std::to_string(worker->rank()) + " " + why + ", and exchanges " +
                   tensors_[tensor].name() + ": " + status.ToString());
  }

  // Of an exchange that ends now.
  void CheckTime(size_t tensor, int64_t at) {
    const SetPhase& phase = phases_[at / kMostRounds];
    const Ranks taking_part =
        phase.TakingPart(tensors_[tensor], static_cast<int>(at % kMostRounds));
    const Begun& begun = begun_[{tensor, at}];
    int64_t since_ns = begun.last_ns;
    bool are_all_here = begun.members == taking_part.size();
    for (const int32_t member : tensors_[tensor].members) {
      if (std::count(taking_part.begin(), taking_part.end(), member) > 0) continue;
      are_all_here = are_all_here && phase.joined_ns[member] > 0;
      since_ns = std::max(since_ns, phase.joined_ns[member]);
    }
    const bool is_late = are_all_here && schedule_.NowNanos() - since_ns > kSoonNanos;
    if (!is_late || faults_.has_lost_worker) return;
    schedule_.After(0, [this, tensor] {
      schedule_.Fail(tensors_[tensor].name() + " waited for somebody who does not take part");
    });
  }

  bool CheckAll(int32_t rank, std::vector<std::shared_ptr<SetExchange>>* live) {
    for (std::shared_ptr<SetExchange>& sent : *live) {
      if (sent != nullptr && !Check(rank, sent.get())) return false;
      sent.reset();
    }
    return true;
  }

  // Whether the program goes on.
  bool Check(int32_t rank, SetExchange* sent) {
    const Status status = sent->Await();
    const SetPhase& phase = PhaseOf(*sent);
    const int32_t giver_up = phase.give_up[RoundOf(*sent)][sent->tensor->number];
    const bool is_joined =
        phase.TakingPart(*sent->tensor, RoundOf(*sent)).size() < sent->tensor->members.size();
    const bool must_fail = is_joined && !sent->tensor->IsSum();
    if (is_joined) ++outcome_.rounds_without_joined;
    if (status.ok()) {
      if (must_fail) Fail(rank, *sent, "is complete, although a worker has joined");
      if (giver_up >= 0) Fail(rank, *sent, "is complete, although a worker has given it up");
      CheckResult(rank, *sent);
      return true;
    }
    // Of an alltoall nobody has what another one lacks.
    const bool is_lost =
        sent->tensor->description.kind == ExchangeKind::kAllToAll && faults_.has_lost_server;
    const bool says_lost = status.code() == StatusCode::kUnavailable && faults_.has_lost_server;
    const bool is_told = says_lost || status.code() == StatusCode::kCancelled ||
                         status.code() == StatusCode::kFailedPrecondition;
    if ((is_lost && says_lost) || (is_told && (must_fail || giver_up >= 0))) return true;
    failure_ = "worker " + std::to_string(rank) + ", " + sent->tensor->name() + ", round " +
               std::to_string(sent->round) + ": " + status.ToString();
    return false;
  }

  void CheckResult(int32_t rank, const SetExchange& sent) {
    const SetTensor& tensor = *sent.tensor;
    const SetPhase& phase = PhaseOf(sent);
    const Ranks from = phase.TakingPart(tensor, RoundOf(sent));
    const std::string fault = results_.FindFault(sent, from, rank);
    if (!fault.empty()) Fail(rank, sent, fault);
  }

  // As tf_byteps.join does it.
  bool Join(Worker* worker, int32_t rank, size_t number) {
    SetPhase& phase = phases_[number];
    ++outcome_.joins;
    phase.joined_ns[rank] = schedule_.NowNanos();
    Status status = worker->BeginJoin();
    if (status.ok() && schedule_.Chance(0.1)) {
      const size_t tensor = schedule_.Draw(tensors_.size() - 1);
      if (tensors_[tensor].is_of(rank))
        Refuse(worker, tensor, StatusCode::kFailedPrecondition, "has joined");
    }
    std::optional<int32_t> last;
    while (status.ok() && !last.has_value()) status = worker->WaitForJoin(0.2, &last);
    if (!status.ok()) {
      failure_ = "worker " + std::to_string(rank) + " cannot join: " + status.ToString();
      return false;
    }
    if (!phase.last.has_value()) phase.last = last;
    if (phase.last != last) schedule_.Fail("two workers were the last to join");
    return GoOnTogether(worker, rank);
  }

  bool GoOnTogether(Worker* worker, int32_t rank) {
    const std::map<std::string, uint64_t> known = worker->NextRounds();
    std::vector<int64_t> next;
    for (const SetTensor& tensor : tensors_) {
      const auto found = known.find(tensor.name());
      next.push_back(found == known.end() ? 0 : static_cast<int64_t>(found->second));
    }
    ExchangeRequest request;
    request.tensor.name = "rounds";
    request.tensor.kind = ExchangeKind::kMax;
    const auto meeting = ProgramExchange::Begin(worker, std::move(request), next);
    const Status status = meeting->Await();
    if (!status.ok()) {
      failure_ = "worker " + std::to_string(rank) + " does not go on: " + status.ToString();
      return false;
    }
    std::map<std::string, uint64_t> highest;
    for (size_t i = 0; i < tensors_.size(); ++i)
      highest[tensors_[i].name()] = static_cast<uint64_t>(meeting->output[i]);
    worker->SkipToRounds(highest);
    return true;
  }

  [[noreturn]] void Fail(int32_t rank, const SetExchange& sent, const std::string& what) {
    schedule_.Fail("worker " + std::to_string(rank) + ", " + sent.tensor->name() + " (" +
                   sent.tensor->description.ToString() + "), round " + std::to_string(sent.round) +
                   ": " + what);
  }

  EventSchedule& schedule_;
  const int32_t num_workers_;
  const bool joins_;
  const JobFaults& faults_;
  SimulationOutcome& outcome_;
  const std::function<SimulatedGpu*(int32_t rank)> gpu_of_;
  std::vector<SetTensor> tensors_;
  std::vector<SetPhase> phases_;
  int64_t pause_ns_ = 0;
  bool is_loose_ = false;  // nobody waits for results before the same tensor's next round
  bool declares_ = false;
  int32_t sleeper_ = -1;  // nobody sleeps
  int sleeps_before_ = 0;
  std::vector<std::vector<std::shared_ptr<SetExchange>>> sent_;  // all, by worker
  std::map<std::pair<size_t, int64_t>, Begun> begun_;            // by tensor and round
  SetResults results_;
};

}  // namespace byteps

// ElasticProgram: what the workers of a simulated elastic job do, as a training with
// tf_byteps.elastic.run does it: they get the state of rank 0, make steps, and commit; after an
// error they go back to their last commit, and meet again in the next epoch.
//
// What a worker gives says in which epoch, step and tensor, so that a sum of two epochs, or of two
// rounds, is none of the expected ones. Checked of each exchange: it ends once, with the exact sum
// of its own round and the epoch's workers, or with an error that an elastic job goes on after,
// where there may be one. Of each commit: it is the same on all workers of an epoch. Of each state
// that is sent: it is rank 0's.
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

#include "cc/simulation/testing/elastic_rendezvous.h"
#include "cc/simulation/testing/elastic_tables.h"
#include "cc/simulation/testing/event_schedule.h"
#include "cc/simulation/testing/program_exchange.h"
#include "cc/simulation/testing/set_exchange.h"
#include "cc/simulation/testing/set_tensor.h"
#include "cc/simulation/testing/simulated_gpu.h"
#include "cc/simulation/testing/simulation_outcome.h"
#include "cc/worker/worker.h"

namespace byteps {

// What a process keeps from epoch to epoch.
struct ElasticState {
  struct Values {
    int64_t step = 0;
    int64_t digest = 0;  // of all that the steps have summed up

    bool operator==(const Values& other) const {
      return step == other.step && digest == other.digest;
    }
    ElasticRows rows;  // if it has a table
  };
  Values now, committed;
};

// A worker in one epoch.
struct ElasticSession {
  std::string name;
  Worker* worker = nullptr;
  const ElasticEpoch* epoch = nullptr;
  int32_t rank = 0;
  SimulatedGpu* gpu = nullptr;  // null: it has none
  // All of them.
  std::vector<std::shared_ptr<ProgramExchange>> sent;
  std::vector<std::shared_ptr<SetExchange>> of_steps;
  std::vector<int64_t> homes;  // of its table's blocks

  std::string What() const { return name + ", epoch " + std::to_string(epoch->number) + ": "; }
};

class ElasticProgram {
 public:
  enum class End {
    kDone,    // all steps are made
    kChange,  // the workers are to change, and all have stopped at the same commit
    kError,   // it has gone back to its last commit
  };

  // All outlive it. `has_forms`: steps exchange tensors of all kinds that are the same on all
  // workers or of their own rows, with codecs; else sums and broadcasts. `has_tables`: steps
  // change a table on the servers, too. `may_fail`: whether an
  // exchange of the epoch may fail, because somebody is lost.
  ElasticProgram(EventSchedule* schedule, bool has_forms, bool has_gpus, bool has_tables,
                 ElasticRendezvous* rendezvous,
                 std::function<bool(const ElasticEpoch& epoch)> may_fail,
                 SimulationOutcome* outcome)
      : schedule_(*schedule),
        rendezvous_(*rendezvous),
        may_fail_(std::move(may_fail)),
        outcome_(*outcome) {
    const size_t count = 1 + schedule_.Draw(2);
    for (size_t i = 0; i < count; ++i)
      tensors_.push_back(has_forms ? DrawForm(schedule, i) : DrawTensor(schedule, i));
    for (SetTensor& tensor : tensors_) {
      if (has_gpus && tensor.description.dtype != DType::kUInt8)
        tensor.description.dtype = DType::kFloat32;
    }
    steps_ = 4 + static_cast<int64_t>(schedule_.Draw(12));
    commits_after_ = 1 + static_cast<int64_t>(schedule_.Draw(3));
    pause_ns_ = static_cast<int64_t>(schedule_.Draw(schedule_.Chance(0.5) ? 1000000 : 5000)) * 1000;
    gives_up_ = schedule_.Chance(0.4);
    if (has_tables) tables_.emplace(schedule, outcome);
  }

  int64_t steps() const { return steps_; }
  bool has_alltoalls() const {
    return std::any_of(tensors_.begin(), tensors_.end(), [](const SetTensor& tensor) {
      return tensor.description.kind == ExchangeKind::kAllToAll;
    });
  }
  int64_t pause_ns() const { return pause_ns_; }
  // Of one round of all tensors.
  uint64_t ResultBytes(int32_t num_workers) const {
    uint64_t bytes = 8 * sizeof(int64_t);  // the state, and whether there is a change
    for (const SetTensor& tensor : tensors_) bytes += tensor.OfJob(num_workers).ResultBytes();
    return tables_.has_value() ? bytes + ElasticTables::kMostBytes : bytes;
  }

  End Run(ElasticSession* own, ElasticState* state) {
    bool is_well = Sync(own, state);
    while (is_well && state->now.step < steps_) {
      is_well = Step(own, state);
      if (!is_well || state->now.step % commits_after_ != 0) continue;
      is_well = Commit(*own, state);
      if (!is_well) continue;
      bool is_to_change = rendezvous_.IsToChange(own->name, own->epoch);
      is_well = AgreeOnChange(own, &is_to_change);
      if (is_well && is_to_change) return End::kChange;
    }
    if (is_well) return End::kDone;
    ++outcome_.rollbacks;
    state->now = state->committed;
    return End::kError;
  }

  // That nothing of it has changed since.
  void CheckEnd(const ElasticSession& own) {
    for (const auto& sent : own.sent)
      Expect(sent->calls == 1,
             own.What() + "an exchange has ended " + std::to_string(sent->calls) + " times");
    for (const auto& sent : own.of_steps) {
      Expect(sent->calls == 1, own.What() + sent->tensor->name() + " has ended " +
                                   std::to_string(sent->calls) + " times");
      if (sent->status.ok()) CheckResult(own, *sent);
    }
  }

 private:
  static constexpr int64_t kMostSteps = 1000;

  static SetTensor DrawTensor(EventSchedule* schedule, size_t number) {
    SetTensor tensor;
    tensor.number = number;
    tensor.rows = 1 + static_cast<int64_t>(schedule->Draw(schedule->Chance(0.3) ? 6000 : 800));
    tensor.description.name = NameOf(number);
    tensor.description.dtype = DType::kInt64;
    tensor.description.shape = {tensor.rows};
    if (schedule->Chance(0.2)) tensor.description.kind = ExchangeKind::kBroadcast;
    return tensor;
  }
  static SetTensor DrawForm(EventSchedule* schedule, size_t number) {
    SetTensor tensor = SetTensor::Drawn(schedule, number, /*num_workers=*/1, /*is_of_set=*/0);
    tensor.description.name = NameOf(number);
    return tensor;
  }

  void Expect(bool holds, const std::string& what) {
    if (!holds) schedule_.Fail(what);
  }

  // Another number in each epoch, step and tensor.
  static int64_t Mixed(const ElasticEpoch& epoch, int64_t step, size_t tensor) {
    uint64_t mixed = 1;
    for (const uint64_t each :
         {static_cast<uint64_t>(epoch.number), static_cast<uint64_t>(step),
          static_cast<uint64_t>(tensor), static_cast<uint64_t>(int32_t{-1}), uint64_t{0}}) {
      mixed = (mixed ^ each) * 0x9e3779b97f4a7c15;
      mixed ^= mixed >> 29;
    }
    return static_cast<int64_t>(mixed >> 20);
  }

  // Who gives a step's tensor up; -1: nobody.
  int32_t GiverUp(const ElasticEpoch& epoch, int64_t step, size_t tensor) const {
    if (!gives_up_ || tensors_[tensor].description.kind != ExchangeKind::kSum) return -1;
    const int64_t drawn = Mixed(epoch, step, tensor);
    return drawn % 10 == 0 ? static_cast<int32_t>(drawn / 10 % epoch.job.num_workers()) : -1;
  }

  // Those of an epoch stay where they are.
  const SetTensor& TensorOf(const ElasticEpoch& epoch, size_t number) {
    std::vector<SetTensor>& all = of_epochs_[&epoch];
    if (all.empty()) {
      for (const SetTensor& tensor : tensors_) {
        all.push_back(tensor.OfJob(epoch.job.num_workers()));
        if (tensor.description.kind == ExchangeKind::kBroadcast)
          all.back().description.root_rank =
              static_cast<int32_t>(tensor.number) % epoch.job.num_workers();
      }
    }
    return all[number];
  }

  static std::string NameOf(size_t tensor) { return "gradient" + std::to_string(tensor); }

  std::shared_ptr<ProgramExchange> Send(ElasticSession* own, const std::string& name,
                                        ExchangeKind kind, int32_t root,
                                        std::vector<int64_t> input) {
    ++outcome_.exchanges;
    ExchangeRequest request;
    request.tensor.name = name;
    request.tensor.kind = kind;
    request.tensor.root_rank = kind == ExchangeKind::kBroadcast ? root : 0;
    own->sent.push_back(ProgramExchange::Begin(own->worker, std::move(request), std::move(input)));
    return own->sent.back();
  }

  // Whether it has ended well. If not, because of a loss, and in a way after which Python goes on:
  // tf_byteps/elastic/running.py.
  bool Check(const ElasticSession& own, const std::string& what, const Status& status) {
    if (status.ok()) return true;
    Expect(may_fail_(*own.epoch), own.What() + what + ": " + status.ToString());
    const bool is_loss = status.code() == StatusCode::kUnavailable || !own.worker->failure().ok();
    Expect(is_loss,
           own.What() + what + " does not say that somebody is lost: " + status.ToString());
    return false;
  }

  bool Sync(ElasticSession* own, ElasticState* state) {
    ElasticState::Values& sent = sent_states_[own->epoch];
    if (own->rank == 0) {
      if (tables_.has_value() && !tables_->MustBeKept(state->committed.rows)) *state = {};
      sent = state->committed;
    }
    const auto exchange = Send(own, "state", ExchangeKind::kBroadcast, 0,
                               {state->committed.step, state->committed.digest});
    if (!Check(*own, "the state", exchange->Await())) return false;
    const ElasticState::Values got = {exchange->output[0], exchange->output[1], sent.rows};
    Expect(got == sent, own->What() + "the state is not that of rank 0");
    if (tables_.has_value()) return SyncTable(own, got, state);
    state->now = state->committed = got;
    return true;
  }

  TableSession TableOf(const ElasticSession& own) {
    TableSession session;
    session.worker = own.worker;
    session.what = own.What();
    session.epoch = own.epoch->job.epoch;
    session.rank = own.rank;
    session.num_workers = own.epoch->job.num_workers();
    session.num_servers = own.epoch->job.num_servers();
    session.check = [this, &own](const std::string& what, const Status& status) {
      return Check(own, what, status);
    };
    return session;
  }

  // With rank 0's state `got`, which is this worker's once all know where the rows are.
  bool SyncTable(ElasticSession* own, const ElasticState::Values& got, ElasticState* state) {
    const TableSession session = TableOf(*own);
    std::vector<int64_t> homes;
    if (own->rank == 0 && !tables_->Plan(session, got.rows, &homes)) return false;
    homes.resize(session.num_servers * std::min(2, session.num_servers));
    const auto exchange = Send(own, "homes", ExchangeKind::kBroadcast, 0, homes);
    if (!Check(*own, "where a table is", exchange->Await())) return false;
    own->homes = exchange->output;
    state->now = state->committed = got;
    if (!tables_->Begin(session, own->homes, &state->now.rows)) return false;
    return CommitTable(*own, state);
  }

  bool CommitTable(const ElasticSession& own, ElasticState* state) {
    if (!tables_->Mark(TableOf(own), own.homes, state->committed.rows.point, &state->now.rows))
      return false;
    state->committed = state->now;
    return true;
  }

  bool Step(ElasticSession* own, ElasticState* state) {
    const ElasticEpoch& epoch = *own->epoch;
    const int64_t step = state->now.step;
    if (schedule_.Chance(0.5)) schedule_.Sleep(static_cast<int64_t>(schedule_.Draw(pause_ns_)));
    std::vector<size_t> order(tensors_.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[schedule_.Draw(i - 1)]);
    std::vector<std::shared_ptr<SetExchange>> sent(tensors_.size());
    for (const size_t i : order) {
      if (GiverUp(epoch, step, i) == own->rank) {
        ++outcome_.given_up_rounds;
        own->worker->GiveUpRounds({NameOf(i)}, "the program leaves this step out");
        continue;
      }
      sent[i] = Begin(own, step, i);
      if (schedule_.Chance(0.2)) schedule_.Sleep(static_cast<int64_t>(schedule_.Draw(1000000)));
    }
    bool is_well = true;
    for (size_t i = 0; i < sent.size(); ++i) {
      if (sent[i] != nullptr) is_well = CheckSum(*own, step, i, *sent[i], state) && is_well;
    }
    if (is_well && tables_.has_value())
      is_well = tables_->Step(TableOf(*own), own->homes, step, &state->now.rows);
    ++state->now.step;
    return is_well;
  }

  std::shared_ptr<SetExchange> Begin(ElasticSession* own, int64_t step, size_t number) {
    const SetTensor& tensor = TensorOf(*own->epoch, number);
    const int64_t round = static_cast<int64_t>(own->epoch->number) * kMostSteps + step;
    own->of_steps.push_back(
        SetExchange::Begin(own->worker, tensor, round, /*on_end=*/nullptr, own->gpu));
    ++outcome_.exchanges;
    if (own->of_steps.back()->is_of_gpu) ++outcome_.gpu_exchanges;
    if (tensor.description.HasOwnRows()) ++outcome_.row_exchanges;
    if (!tensor.description.codec.empty()) ++outcome_.coded_sums;
    return own->of_steps.back();
  }

  void CheckResult(const ElasticSession& own, const SetExchange& sent) {
    const std::string fault = results_.FindFault(sent, sent.tensor->members, own.rank);
    Expect(fault.empty(), own.What() + sent.tensor->name() + " (" +
                              sent.tensor->description.ToString() + ") of step " +
                              std::to_string(sent.round % kMostSteps) + " " + fault);
  }

  bool CheckSum(const ElasticSession& own, int64_t step, size_t tensor, SetExchange& sent,
                ElasticState* state) {
    const ElasticEpoch& epoch = *own.epoch;
    const std::string what = NameOf(tensor) + " of step " + std::to_string(step);
    const Status status = sent.Await();
    if (GiverUp(epoch, step, tensor) >= 0) {
      Expect(!status.ok(), own.What() + what + " is complete, although a worker has given it up");
      // By the withdrawal, or by the next round's push, which may overtake it (protocol rule 31),
      // or by a server that does not know why the round has no result.
      const bool is_lost =
          status.code() == StatusCode::kUnavailable && own.worker->counters().lost_servers > 0;
      const bool is_told = is_lost || status.code() == StatusCode::kCancelled ||
                           status.code() == StatusCode::kFailedPrecondition;
      return is_told || Check(own, what, status);
    }
    if (!Check(own, what, status)) return false;
    CheckResult(own, sent);
    if (sent.tensor->description.kind == ExchangeKind::kAllToAll)
      return true;  // not the same on all
    for (const uint8_t each : sent.output)
      state->now.digest = (state->now.digest * 31 + each) % (int64_t{1} << 40);
    return true;
  }

  bool Commit(const ElasticSession& own, ElasticState* state) {
    if (tables_.has_value() && !CommitTable(own, state)) return false;
    state->committed = state->now;
    const auto [kept, is_first] =
        commits_.emplace(std::make_pair(own.epoch, state->now.step), state->now);
    Expect(is_first || kept->second == state->now,
           own.What() + "a commit is not the same on all workers");
    return true;
  }

  // As State.check_host_updates does.
  bool AgreeOnChange(ElasticSession* own, bool* is_to_change) {
    const auto exchange = Send(own, "change", ExchangeKind::kSum, 0, {*is_to_change ? 1 : 0});
    if (!Check(*own, "whether the workers change", exchange->Await())) return false;
    *is_to_change = exchange->output[0] > 0;
    return true;
  }

  EventSchedule& schedule_;
  ElasticRendezvous& rendezvous_;
  const std::function<bool(const ElasticEpoch& epoch)> may_fail_;
  SimulationOutcome& outcome_;
  std::vector<SetTensor> tensors_;  // of no epoch
  std::map<const ElasticEpoch*, std::vector<SetTensor>> of_epochs_;
  SetResults results_;
  std::optional<ElasticTables> tables_;
  int64_t steps_ = 0, commits_after_ = 1, pause_ns_ = 0;
  bool gives_up_ = false;
  std::map<const ElasticEpoch*, ElasticState::Values> sent_states_;  // by rank 0
  std::map<std::pair<const ElasticEpoch*, int64_t>, ElasticState::Values> commits_;
};

}  // namespace byteps

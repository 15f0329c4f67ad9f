// QuorumProgram: what workers do in a SimulatedJob whose rounds end when a quorum has come
// (docs/local_steps.md, tf_byteps/local_steps/quorum.py).
//
// A worker's step adds 1 to a number of its own. A round has two exchanges: a table of who has come
// and with how many steps, and the sum of the steps of those. Checked of each table: it is the same
// on all workers, a quorum is in it, and who was not in the one before. Of each sum: it has the
// steps of the table, each once. In the end: all steps of all workers have been in a sum.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/simulation/testing/event_schedule.h"
#include "cc/simulation/testing/job_program.h"
#include "cc/simulation/testing/program_exchange.h"
#include "cc/simulation/testing/simulation_outcome.h"
#include "cc/worker/worker.h"

namespace byteps {

class QuorumProgram final : public JobProgram {
 public:
  QuorumProgram(EventSchedule* schedule, int32_t num_workers, SimulationOutcome* outcome)
      : schedule_(*schedule),
        outcome_(*outcome),
        num_workers_(num_workers),
        barrier_(schedule, num_workers),
        progress_(num_workers) {
    elements_.resize(1 + schedule_.Draw(1));
    for (int64_t& each : elements_)
      each = 1 + static_cast<int64_t>(schedule_.Draw(schedule_.Chance(0.3) ? 8000 : 800));
    quorum_ = 1 + static_cast<int32_t>(schedule_.Draw(num_workers - 2));
    grace_ms_ = schedule_.Chance(0.5) ? kAdaptiveGrace : static_cast<int32_t>(schedule_.Draw(20));
    steps_ = 4 + static_cast<int>(schedule_.Draw(12));
    between_ = 1 + static_cast<int>(schedule_.Draw(3));
    pause_ns_ = static_cast<int64_t>(schedule_.Draw(5000)) * 1000;
  }

  bool Run(Worker* worker, int32_t rank) override {
    for (int training = 0; training < kTrainings; ++training) {
      if (!barrier_.Meet(rank)) return false;
      Progress& own = progress_[rank];
      own = Progress();
      own.fragments.resize(elements_.size());
      for (Fragment& fragment : own.fragments) fragment.stopped.assign(num_workers_, false);
      own.stopped.assign(num_workers_, false);
      if (rank == 0) tables_.clear();
      if (!barrier_.Meet(rank)) return false;
      DeclareTables(worker);
      if (Train(worker, rank) && Finish(worker, rank) && barrier_.Meet(rank)) {
        CheckSteps(rank);
        continue;
      }
      barrier_.Fail();
      return false;
    }
    return true;
  }

 private:
  static constexpr int kTrainings = 2;  // one after the other
  static constexpr int kDigits = 16;    // bits of a worker's number of steps
  static constexpr int64_t kLongestWaitNanos = 1000000000, kBetweenLooksNanos = 2000000;

  struct Fragment {
    int steps = 0;        // since its last round
    int64_t carried = 0;  // steps that came late
    int64_t sum = 0;      // of all rounds
    bool was_in = true;   // in its last round
    std::vector<bool> stopped;
  };
  struct Progress {  // of a worker
    std::vector<Fragment> fragments;
    std::vector<bool> stopped;
    int made = 0, since_round = 0;
    size_t rounds = 0;
  };
  using Table = std::vector<int64_t>;

  static std::string NameOf(size_t fragment) { return "fragment" + std::to_string(fragment); }
  static std::string TableOf(size_t fragment) { return NameOf(fragment) + "/attendance"; }

  // The number of workers that a round waits for.
  int32_t Required(const Progress& own) const { return IsEnding(own) ? num_workers_ : quorum_; }
  bool IsEnding(const Progress& own) const {
    return std::count(own.stopped.begin(), own.stopped.end(), true) >= quorum_;
  }

  TensorDescription TermsOfTable(size_t fragment, int32_t required) const {
    TensorDescription terms;
    terms.name = TableOf(fragment);
    terms.dtype = DType::kInt64;
    terms.shape = {3 * num_workers_};
    terms.backup_workers = num_workers_ - required;
    terms.grace_ms = terms.backup_workers == 0 ? kNoGrace : grace_ms_;
    return terms;
  }

  void DeclareTables(Worker* worker) const {
    std::vector<TensorDescription> tables;
    for (size_t i = 0; i < elements_.size(); ++i) tables.push_back(TermsOfTable(i, quorum_));
    worker->Declare(std::move(tables));
  }

  bool Train(Worker* worker, int32_t rank) {
    Progress& own = progress_[rank];
    for (int step = 0; step < steps_ && !IsEnding(own); ++step) {
      if (schedule_.Chance(0.7))
        schedule_.Sleep(static_cast<int64_t>(schedule_.Draw((rank + 1) * pause_ns_)));
      ++own.made;
      for (Fragment& fragment : own.fragments) ++fragment.steps;
      const size_t next = own.rounds % elements_.size();
      const bool is_due = ++own.since_round >= between_ || IsRequested(*worker, own, next);
      if (is_due && !Round(worker, rank, /*makes_no_more_steps=*/false)) return false;
    }
    return true;
  }

  // There are rounds until all that the workers have done has been in one.
  bool Finish(Worker* worker, int32_t rank) {
    Progress& own = progress_[rank];
    const auto is_complete = [](const Fragment& fragment) {
      return std::count(fragment.stopped.begin(), fragment.stopped.end(), false) == 0;
    };
    while (!std::all_of(own.fragments.begin(), own.fragments.end(), is_complete)) {
      AwaitRequest(*worker, rank);
      if (!Round(worker, rank, /*makes_no_more_steps=*/true)) return false;
    }
    return true;
  }

  bool IsRequested(const Worker& worker, const Progress& own, size_t fragment) const {
    return Required(own) < num_workers_ && worker.IsRequested(TableOf(fragment));
  }

  // Who makes no more steps, and has told so, comes when another one does.
  void AwaitRequest(const Worker& worker, int32_t rank) {
    const Progress& own = progress_[rank];
    if (!own.stopped[rank] || IsEnding(own)) return;
    const int64_t latest = schedule_.NowNanos() + kLongestWaitNanos;
    while (!IsRequested(worker, own, own.rounds % elements_.size()) &&
           schedule_.NowNanos() < latest)
      schedule_.Sleep(kBetweenLooksNanos);
  }

  bool Round(Worker* worker, int32_t rank, bool makes_no_more_steps) {
    Progress& own = progress_[rank];
    const size_t number = own.rounds % elements_.size();
    Fragment& fragment = own.fragments[number];
    const int64_t brought = fragment.steps + fragment.carried;
    fragment.steps = 0;
    own.since_round = 0;
    Table table(3 * num_workers_, 0);
    table[rank] = 1;
    table[num_workers_ + rank] = brought;
    table[2 * num_workers_ + rank] = makes_no_more_steps ? 1 : 0;
    ExchangeRequest request;
    request.tensor = TermsOfTable(number, Required(own));
    const Table given = table;
    if (!Exchange(worker, rank, std::move(request), std::move(table), &table)) return false;
    CheckTable(rank, number, given, table);
    const bool is_in = table[rank] > 0;
    for (int32_t each = 0; each < num_workers_; ++each) {
      if (table[2 * num_workers_ + each] == 0) continue;
      own.stopped[each] = true;
      fragment.stopped[each] = true;
    }
    ++own.rounds;
    fragment.was_in = is_in;
    if (!is_in) ++outcome_.late_changes;
    fragment.carried = is_in ? 0 : brought;
    return AddUp(worker, rank, number, table, is_in ? brought : 0);
  }

  // The second exchange of a round: of those who are in the table.
  bool AddUp(Worker* worker, int32_t rank, size_t number, const Table& table, int64_t brought) {
    const auto rows = table.begin() + num_workers_;
    if (std::all_of(rows, rows + num_workers_, [](int64_t each) { return each == 0; })) return true;
    ExchangeRequest request;
    request.tensor.name = NameOf(number);
    request.tensor.backup_workers =
        num_workers_ - static_cast<int32_t>(std::count(table.begin(), rows, 1));
    request.contributes = table[rank] > 0;
    std::vector<int64_t> sum(elements_[number], brought << (kDigits * rank));
    if (!Exchange(worker, rank, std::move(request), std::move(sum), &sum)) return false;
    int64_t expected = 0;
    for (int32_t each = 0; each < num_workers_; ++each) expected += rows[each] << (kDigits * each);
    for (const int64_t value : sum) {
      if (value == expected) continue;
      Fail(rank, number, "the sum has not the steps of those who are in the round");
      return true;
    }
    progress_[rank].fragments[number].sum += expected;
    return true;
  }

  bool Exchange(Worker* worker, int32_t rank, ExchangeRequest request, std::vector<int64_t> input,
                std::vector<int64_t>* output) {
    ++outcome_.exchanges;
    const std::string name = request.tensor.name;
    const auto begun = ProgramExchange::Begin(worker, std::move(request), std::move(input));
    const Status status = begun->Await();
    if (!status.ok())
      failure_ = "worker " + std::to_string(rank) + ", " + name + ": " + status.ToString();
    *output = begun->output;
    return status.ok();
  }

  void CheckTable(int32_t rank, size_t number, const Table& given, const Table& table) {
    const Progress& own = progress_[rank];
    if (tables_.size() == own.rounds)
      tables_.push_back(table);
    else if (tables_[own.rounds] != table)
      Fail(rank, number, "who is in the round is not the same on all workers");
    if (std::count(table.begin(), table.begin() + num_workers_, 1) < Required(own))
      Fail(rank, number, "a round has ended without a quorum");
    if (table[rank] == 0 && !own.fragments[number].was_in)
      Fail(rank, number, "two rounds have ended without this worker");
    for (int row = 0; row < 3; ++row) {
      const size_t at = row * num_workers_ + rank;
      if (table[at] != (table[rank] == 0 ? 0 : given[at]))
        Fail(rank, number, "the table has another number for this worker");
    }
  }

  void CheckSteps(int32_t rank) {
    int64_t expected = 0;
    for (int32_t each = 0; each < num_workers_; ++each)
      expected += static_cast<int64_t>(progress_[each].made) << (kDigits * each);
    for (size_t number = 0; number < elements_.size(); ++number) {
      if (progress_[rank].fragments[number].sum != expected)
        Fail(rank, number, "not all steps have been in a round at the end");
    }
  }

  void Fail(int32_t rank, size_t number, const std::string& what) {
    schedule_.Fail("worker " + std::to_string(rank) + ", " + NameOf(number) + ", round " +
                   std::to_string(progress_[rank].rounds) + ": " + what);
  }

  EventSchedule& schedule_;
  SimulationOutcome& outcome_;
  const int32_t num_workers_;
  std::vector<int64_t> elements_;  // of each fragment
  int32_t quorum_ = 0, grace_ms_ = 0;
  int steps_ = 0;    // of a worker, at most
  int between_ = 0;  // steps between two rounds, at most
  int64_t pause_ns_ = 0;
  ProgramBarrier barrier_;
  std::vector<Progress> progress_;  // by worker
  std::vector<Table> tables_;       // by round
};

}  // namespace byteps

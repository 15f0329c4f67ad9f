// StoreProgram: what workers do with asynchronous stores (ExchangeKind::kStore) in a SimulatedJob.
//
// Each worker adds 1 to a number of its own, so that an answer says how many changes of each worker
// are in it. Checked of each answer: all of this worker's own changes are in it, each once; none is
// gone that was in the answer before; nobody has fallen behind by more than the staleness. In the
// end: all changes of all workers are in it.
//
// With joins workers have different numbers of rounds, after which they join, until all have; then
// they go on with the same store, or begin the next one. Nobody waits for who has joined.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/simulation/testing/event_schedule.h"
#include "cc/simulation/testing/job_program.h"
#include "cc/simulation/testing/program_exchange.h"
#include "cc/simulation/testing/simulation_outcome.h"
#include "cc/worker/worker.h"

namespace byteps {

class StoreProgram final : public JobProgram {
 public:
  // `may_give_up`: a worker may leave changes out. Not where a server may be lost: then the next
  // change may be lost with it (base/store_rounds.h).
  StoreProgram(EventSchedule* schedule, int32_t num_workers, bool may_give_up, bool joins,
               SimulationOutcome* outcome)
      : schedule_(*schedule),
        num_workers_(num_workers),
        joins_(joins),
        outcome_(*outcome),
        barrier_(schedule, num_workers) {
    const size_t stores = 1 + schedule_.Draw(1);
    for (size_t i = 0; i < stores; ++i)
      elements_.push_back(static_cast<int64_t>(schedule_.Draw(schedule_.Chance(0.3) ? 8000 : 800)));
    staleness_ = static_cast<int32_t>(schedule_.Draw(4)) - 1;
    rounds_ = 2 + static_cast<int>(schedule_.Draw(6));
    gives_up_ = may_give_up && schedule_.Chance(0.5);
    pause_ns_ = static_cast<int64_t>(schedule_.Draw(5000)) * 1000;
    made_.assign(num_workers, std::vector<int>(stores, 0));
    rounds_of_.assign(num_workers, {rounds_});
    if (!joins) return;
    const size_t phases = 1 + schedule_.Draw(2);
    for (std::vector<int>& each : rounds_of_) {
      each.clear();
      for (size_t i = 0; i < phases; ++i) each.push_back(static_cast<int>(schedule_.Draw(8)));
    }
  }

  bool Run(Worker* worker, int32_t rank) override {
    for (int store = 0; store < kStores; ++store) {
      if (store > 0 && !barrier_.Meet(rank)) return false;
      if (store > 0) worker->BeginStores(Names());
      made_[rank].assign(elements_.size(), 0);
      if (!barrier_.Meet(rank)) return false;
      const bool is_well = RunStore(worker, rank, store);
      if (!is_well) barrier_.Fail();
      if (!is_well) return false;
    }
    return true;
  }

 private:
  static constexpr int kStores = 2;                    // one after the other
  static constexpr int kDigits = 16;                   // bits of a worker's number
  static constexpr int64_t kFirst = int64_t{1} << 60;  // what a store begins with

  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (size_t i = 0; i < elements_.size(); ++i) names.push_back("store" + std::to_string(i));
    return names;
  }

  bool RunStore(Worker* worker, int32_t rank, int store) {
    std::vector<std::vector<int64_t>> seen(elements_.size());
    for (size_t phase = 0; phase < rounds_of_[rank].size(); ++phase) {
      if (!RunPhase(worker, rank, store, phase, &seen)) return false;
      if (joins_ && !Join(worker, rank)) return false;
    }
    return CheckStore(worker, rank, store);
  }

  // So many rounds a worker has behind it at the end of a phase; the first one begins the store.
  int EndOf(size_t phase, int32_t rank) const {
    const std::vector<int>& rounds = rounds_of_[rank];
    return std::accumulate(rounds.begin(), rounds.begin() + phase + 1, 1);
  }
  // By so many more it counts as further in a phase, since all have joined.
  int LeadOf(size_t phase, int32_t rank) const {
    int most = 0;
    for (int32_t each = 0; phase > 0 && each < num_workers_; ++each)
      most = std::max(most, EndOf(phase - 1, each));
    return phase == 0 ? 0 : most - EndOf(phase - 1, rank);
  }

  bool RunPhase(Worker* worker, int32_t rank, int store, size_t phase,
                std::vector<std::vector<int64_t>>* seen) {
    const int end = EndOf(phase, rank);
    for (int round = phase == 0 ? 0 : EndOf(phase - 1, rank); round < end; ++round) {
      // The fast one does not wait for the slow one, but for the staleness.
      if (schedule_.Chance(0.7))
        schedule_.Sleep(static_cast<int64_t>(schedule_.Draw((rank + 1) * pause_ns_)));
      std::vector<std::shared_ptr<ProgramExchange>> sent(elements_.size());
      for (size_t i = 0; i < elements_.size(); ++i) {
        if (round > 0 && gives_up_ && schedule_.Chance(0.1)) {
          worker->GiveUpRounds({Names()[i]}, "the program leaves this change out");
          ++outcome_.given_up_rounds;
          continue;
        }
        if (round > 0) ++made_[rank][i];
        const int64_t value = round == 0 ? kFirst + store : int64_t{1} << (kDigits * rank);
        sent[i] = Push(worker, i, value);
        ++outcome_.exchanges;
      }
      for (size_t i = 0; i < elements_.size(); ++i) {
        if (sent[i] != nullptr && !Check(rank, store, phase, round, i, *sent[i], &(*seen)[i]))
          return false;
      }
    }
    return true;
  }

  // As tf_byteps.join does it.
  bool Join(Worker* worker, int32_t rank) {
    ++outcome_.joins;
    Status status = worker->BeginJoin();
    std::optional<int32_t> last;
    while (status.ok() && !last.has_value()) status = worker->WaitForJoin(0.2, &last);
    if (status.ok()) return true;
    failure_ = "worker " + std::to_string(rank) + " cannot join: " + status.ToString();
    return false;
  }

  std::shared_ptr<ProgramExchange> Push(Worker* worker, size_t index, int64_t value) {
    ExchangeRequest request;
    request.tensor.name = Names()[index];
    request.tensor.kind = ExchangeKind::kStore;
    request.tensor.staleness = staleness_;
    return ProgramExchange::Begin(worker, std::move(request),
                                  std::vector<int64_t>(elements_[index], value));
  }

  bool Await(const std::string& what, ProgramExchange* sent) {
    const Status status = sent->Await();
    if (!status.ok()) failure_ = what + status.ToString();
    return status.ok();
  }

  static int64_t CountOf(int64_t value, int32_t worker) {
    return (value >> (kDigits * worker)) & ((1 << kDigits) - 1);
  }

  bool Check(int32_t rank, int store, size_t phase, int round, size_t index, ProgramExchange& sent,
             std::vector<int64_t>* seen) {
    const std::string what = "worker " + std::to_string(rank) + ", " + Names()[index] + " " +
                             std::to_string(store) + ", round " + std::to_string(round) + ": ";
    if (!Await(what, &sent)) return false;
    for (size_t i = 0; i < sent.output.size(); ++i) {
      const int64_t got = sent.output[i] - kFirst - store;
      for (int32_t worker = 0; worker < num_workers_; ++worker) {
        const int64_t count = CountOf(got, worker);
        const int made = made_[worker][index];
        // The staleness counts pushes, and a worker that gives one up is not waited for.
        // Nor is one that has joined.
        const int ahead = round + LeadOf(phase, rank) - LeadOf(phase, worker);
        const int most = EndOf(phase, worker) - 1;
        if (i == 0 && ahead > most) ++outcome_.rounds_without_joined;
        const int64_t least =
            staleness_ < 0 || gives_up_ ? 0 : std::min<int64_t>(ahead - staleness_, most);
        const bool is_right = worker == rank ? count == made : count <= made && count >= least;
        const bool is_newer = seen->empty() || count >= CountOf((*seen)[i], worker);
        if (is_right && is_newer) continue;
        schedule_.Fail(what + "element " + std::to_string(i) + " has " + std::to_string(count) +
                       " changes of worker " + std::to_string(worker) + ", who has made " +
                       std::to_string(made) + "; staleness " + std::to_string(staleness_));
        return true;
      }
    }
    seen->clear();
    for (const int64_t value : sent.output) seen->push_back(value - kFirst - store);
    return true;
  }

  // All have the answers to all changes: what is in the store now is the same for all.
  bool CheckStore(Worker* worker, int32_t rank, int store) {
    if (!barrier_.Meet(rank)) return false;
    for (size_t index = 0; index < elements_.size(); ++index) {
      const std::shared_ptr<ProgramExchange> sent = Push(worker, index, 0);
      ++outcome_.exchanges;
      if (!Await("at the end: ", sent.get())) return false;
      int64_t expected = kFirst + store;
      for (int32_t each = 0; each < num_workers_; ++each)
        expected += static_cast<int64_t>(made_[each][index]) << (kDigits * each);
      for (const int64_t value : sent->output) {
        if (value == expected) continue;
        schedule_.Fail("worker " + std::to_string(rank) + ", " + Names()[index] + " " +
                       std::to_string(store) + ": not all changes are in the store at the end");
        return true;
      }
    }
    return barrier_.Meet(rank);
  }

  EventSchedule& schedule_;
  const int32_t num_workers_;
  const bool joins_;
  SimulationOutcome& outcome_;
  std::vector<int64_t> elements_;  // of each store
  int32_t staleness_ = 0;
  int rounds_ = 0;
  bool gives_up_ = false;
  int64_t pause_ns_ = 0;
  std::vector<std::vector<int>> rounds_of_;  // of each worker, from join to join
  std::vector<std::vector<int>> made_;       // changes, by worker and store
  ProgramBarrier barrier_;
};

}  // namespace byteps

// SimulationRun: what the simulations of all kinds of jobs have: a schedule and a network that one
// seed decides, an outcome, and the checks of a worker's credit and a server's memory.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cc/base/status.h"
#include "cc/server/server.h"
#include "cc/simulation/testing/event_schedule.h"
#include "cc/simulation/testing/simulated_network.h"
#include "cc/simulation/testing/simulated_van.h"
#include "cc/simulation/testing/simulation_outcome.h"
#include "cc/worker/worker.h"

namespace byteps {

class SimulationRun {
 protected:
  static constexpr int64_t kMillisecond = 1000000;

  SimulationRun(uint64_t seed, bool keeps_log) : schedule_(seed, keeps_log), network_(&schedule_) {}
  ~SimulationRun() = default;

  // `look` is called after every 16 events.
  SimulationOutcome Run(const std::function<void()>& job, const std::function<void()>& look) {
    schedule_.AfterEvent([this, look] {
      if (++looks_ % 16 == 0) look();
    });
    schedule_.Run(job);
    SimulationOutcome outcome = outcome_;
    outcome.failure = schedule_.failure();
    outcome.hash = schedule_.hash();
    outcome.events = schedule_.events_done();
    outcome.log = schedule_.log();
    return outcome;
  }

  uint64_t Draw(uint64_t most) { return schedule_.Draw(most); }
  bool Chance(double probability) { return schedule_.Chance(probability); }
  int64_t DrawMilliseconds(uint64_t most) {
    return static_cast<int64_t>(Draw(most)) * kMillisecond;
  }
  void Expect(bool holds, const std::string& what) {
    if (!holds) schedule_.Fail(what);
  }
  void ExpectOk(const Status& status, const std::string& what) {
    Expect(status.ok(), what + ": " + status.ToString());
  }

  // No credit is negative. Until the worker has heard that a connection has ended, what was lost
  // with that counts, too.
  void LookAtWorker(const std::string& name, const Worker& worker) {
    constexpr uint64_t kNegative = uint64_t{1} << 40;
    const WorkerCounters counters = worker.counters();
    const bool is_negative =
        counters.in_flight_bytes >= kNegative || counters.unanswered_bytes >= kNegative;
    if (!is_negative && counters.in_flight_bytes >= network_.PushedBytes(name)) return;
    FailSoon(name + " has been given back more credit than it had");
  }

  // In rank order a server has all contributions of a round, and again those of one that has failed
  // while they arrive; the sum; and the result before, which is still being sent.
  void LookAtServer(const std::string& name, const Server& server, uint64_t num_workers,
                    uint64_t result_bytes) {
    const uint64_t most = (2 * num_workers + 2) * result_bytes;
    const uint64_t bytes = server.counters().accumulator_bytes;
    if (bytes <= most) return;
    FailSoon(name + " holds " + std::to_string(bytes) + " bytes of rounds; " +
             std::to_string(most) + " are enough for all tensors");
  }

  // All credit of a worker has come back, but for what servers may keep. `who` begins a sentence,
  // with a space behind; `end` says of what it is the end.
  void CheckCredit(const std::string& who, const std::string& end, const Worker& worker,
                   uint64_t kept_back) {
    const WorkerCounters counters = worker.counters();
    Expect(counters.in_flight_bytes <= kept_back,
           who + "lacks " + std::to_string(counters.in_flight_bytes) + " bytes of credit at " +
               end + "; servers keep back " + std::to_string(kept_back));
    Expect(counters.unanswered_bytes == 0 && counters.queued_parts == 0,
           who + "still waits for answers at " + end);
  }

  // These outlive what a job has.
  EventSchedule schedule_;
  SimulatedNetwork network_;
  SimulationOutcome outcome_;

 private:
  // What looks may not end the simulation itself.
  void FailSoon(const std::string& why) {
    schedule_.After(0, [this, why] { schedule_.Fail(why); });
  }

  uint64_t looks_ = 0;
};

}  // namespace byteps

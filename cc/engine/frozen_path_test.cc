// Paths between a worker and a server that swallow what is sent, while all processes live and reach
// the coordinator (protocol rule 32).
#include <gtest/gtest.h>

#include <chrono>
#include <thread>
#include <vector>

#include "cc/engine/testing/killable_job.h"

namespace byteps {
namespace {

constexpr int kWorkers = 2;
constexpr int kFrozen = 0;  // server

EngineOptions Options() {
  EngineOptions options;
  options.flow.part_bytes = 16 * 1024;
  options.timeouts.heartbeat_interval = 2;
  options.timeouts.operation_timeout = 120;
  return options;
}

void ExchangeOnAll(KillableJob& job, int first_round, int rounds) {
  job.OnEachWorker([&](Worker& worker, int rank) {
    for (int round = first_round; round < first_round + rounds; ++round)
      ExchangeRound(worker, rank, kWorkers, round);
  });
}

TEST(FrozenPathTest, AFrozenServerCountsAsLostAndTheOtherOneGoesOn) {
  KillableJob job(kWorkers, 2, Options());
  ExchangeOnAll(job, 0, 3);
  for (int worker = 0; worker < kWorkers; ++worker) job.gate(kFrozen, worker).Admit(0, 0);
  ExchangeOnAll(job, 3, 3);
  EXPECT_EQ(job.coordinator().lost_servers(), std::vector<int32_t>{kFrozen});
}

TEST(FrozenPathTest, APathThatPassesAgainIsMadeAgain) {
  KillableJob job(kWorkers, 2, Options());
  ExchangeOnAll(job, 0, 3);
  GatedProxy& gate = job.gate(kFrozen, 1);
  const int connections = gate.connections();
  gate.Admit(0, 0);
  std::thread thaw([&] {
    for (int i = 0; i < 60000 && gate.connections() == connections; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    gate.Admit(kAll, kAll);
  });
  ExchangeOnAll(job, 3, 3);
  thaw.join();
  EXPECT_GT(gate.connections(), connections);
  EXPECT_TRUE(job.coordinator().lost_servers().empty());
}

// Servers say nothing while a worker computes; that is no silence of the path.
TEST(FrozenPathTest, WaitingForASlowWorkerBreaksNothing) {
  KillableJob job(kWorkers, 1, Options());
  ExchangeOnAll(job, 0, 1);
  job.OnEachWorker([&](Worker& worker, int rank) {
    if (rank == 1) std::this_thread::sleep_for(std::chrono::seconds(8));
    ExchangeRound(worker, rank, kWorkers, 1);
  });
  for (int worker = 0; worker < kWorkers; ++worker) EXPECT_EQ(job.gate(0, worker).connections(), 1);
}

}  // namespace
}  // namespace byteps

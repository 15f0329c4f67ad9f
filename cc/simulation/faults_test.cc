// Random programs, random faults: of each seed everything holds that simulated_job.h checks.
//
//     BYTEPS_SIMULATION_SEED=N     runs this one only, and prints all that happens
//     BYTEPS_SIMULATION_SEEDS=N    runs so many, from 1 on
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "cc/base/logging.h"
#include "cc/simulation/testing/simulated_job.h"

namespace byteps {
namespace {

constexpr uint64_t kSeeds = 500;
// Beyond these, and each of them failed once: a late question over a connection that another one
// had replaced (protocol rule 31), credit that several connections kept back (protocol rule 9),
// credit for the result of a part that had moved on, which had taken none, a push of a round after
// which others had given up two at a server that was lost (protocol rule 31), a result of a lost
// server that only one had who had left the training since (protocol rule 15).
constexpr uint64_t kSeedsThatFailed[] = {734, 796, 4525, 1352, 2244};

uint64_t Given(const char* variable, uint64_t otherwise) {
  const char* const given = std::getenv(variable);
  return given == nullptr ? otherwise : std::stoull(given);
}

TEST(FaultsTest, NoSeedBreaksAJob) {
  if (!kCanSimulate) GTEST_SKIP() << "not with a sanitizer";
  SetLogLevel(LogLevel::kError);
  if (const uint64_t seed = Given("BYTEPS_SIMULATION_SEED", 0)) {
    const SimulationOutcome outcome = Simulate(seed, nullptr, /*keeps_log=*/true);
    for (const std::string& line : outcome.log) std::cout << line << "\n";
    EXPECT_EQ(outcome.failure, "");
    return;
  }
  SimulationOutcome all;
  const uint64_t seeds = Given("BYTEPS_SIMULATION_SEEDS", kSeeds);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const SimulationOutcome outcome = Simulate(seed);
    ASSERT_EQ(outcome.failure, "") << Replay(seed);
    all.events += outcome.events;
    all.exchanges += outcome.exchanges;
    all.lost_servers += outcome.lost_servers;
    all.returned_servers += outcome.returned_servers;
    all.retried_parts += outcome.retried_parts;
    all.given_up_rounds += outcome.given_up_rounds;
    all.left_trainings += outcome.left_trainings;
    all.lost_workers += outcome.lost_workers;
  }
  std::cout << seeds << " seeds: " << all.events << " events, " << all.exchanges << " exchanges, "
            << all.lost_servers << " lost servers and " << all.returned_servers
            << " that came back, as workers saw them, " << all.retried_parts
            << " parts pushed again, " << all.given_up_rounds << " rounds given up, "
            << all.left_trainings << " trainings left, " << all.lost_workers << " lost workers"
            << std::endl;
  if (seeds < kSeeds) return;
  EXPECT_GT(all.lost_servers, 100u);
  EXPECT_GT(all.returned_servers, 20u);
  EXPECT_GT(all.retried_parts, 100u);
  EXPECT_GT(all.given_up_rounds, 100u);
  EXPECT_GT(all.left_trainings, 50u);
  EXPECT_GT(all.lost_workers, 5u);
}

TEST(FaultsTest, SeedsThatFailedDoSoNoMore) {
  if (!kCanSimulate) GTEST_SKIP() << "not with a sanitizer";
  SetLogLevel(LogLevel::kError);
  for (const uint64_t seed : kSeedsThatFailed) {
    const SimulationOutcome outcome = Simulate(seed);
    ASSERT_EQ(outcome.failure, "") << Replay(seed);
  }
}

TEST(FaultsTest, ASeedDecidesAllThatHappens) {
  if (!kCanSimulate) GTEST_SKIP() << "not with a sanitizer";
  SetLogLevel(LogLevel::kError);
  for (const uint64_t seed : {3u, 11u, 12u}) {
    const SimulationOutcome first = Simulate(seed), second = Simulate(seed, nullptr, true);
    EXPECT_EQ(first.hash, second.hash) << "seed " << seed;
    EXPECT_EQ(first.events, second.events) << "seed " << seed;
    EXPECT_GT(second.log.size(), 100u);
  }
  EXPECT_NE(Simulate(3).hash, Simulate(11).hash);
}

}  // namespace
}  // namespace byteps

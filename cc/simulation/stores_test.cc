// Asynchronous stores under random faults: of each seed everything holds that store_program.h
// checks. And a planted bug is found.
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
constexpr uint64_t kMostSeeds = 2000;  // that find a planted bug

uint64_t Given(const char* variable, uint64_t otherwise) {
  const char* const given = std::getenv(variable);
  return given == nullptr ? otherwise : std::stoull(given);
}

SimulationOutcome SimulateStores(uint64_t seed,
                                 const std::function<void(SimulatedNetwork*)>& plant = nullptr,
                                 bool keeps_log = false) {
  return Simulate(seed, plant, keeps_log, Programs::kStores);
}

class StoresTest : public testing::Test {
  void SetUp() override {
    if (!kCanSimulate) GTEST_SKIP() << "not with a sanitizer";
    SetLogLevel(LogLevel::kError);
  }
};

// Protocol rules 9, 13, 36, 37.
TEST_F(StoresTest, NoSeedLosesAChangeOrAddsOneTwice) {
  if (const uint64_t seed = Given("BYTEPS_SIMULATION_SEED", 0)) {
    const SimulationOutcome outcome = SimulateStores(seed, nullptr, /*keeps_log=*/true);
    for (const std::string& line : outcome.log) std::cout << line << "\n";
    EXPECT_EQ(outcome.failure, "");
    return;
  }
  SimulationOutcome all;
  const uint64_t seeds = Given("BYTEPS_SIMULATION_SEEDS", kSeeds);
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const SimulationOutcome outcome = SimulateStores(seed);
    ASSERT_EQ(outcome.failure, "") << Replay(seed, nullptr, 200, Programs::kStores);
    all.events += outcome.events;
    all.exchanges += outcome.exchanges;
    all.lost_servers += outcome.lost_servers;
    all.returned_servers += outcome.returned_servers;
    all.retried_parts += outcome.retried_parts;
    all.given_up_rounds += outcome.given_up_rounds;
    all.lost_workers += outcome.lost_workers;
  }
  std::cout << seeds << " seeds: " << all.events << " events, " << all.exchanges << " exchanges, "
            << all.lost_servers << " lost servers and " << all.returned_servers
            << " that came back, as workers saw them, " << all.retried_parts
            << " parts pushed again, " << all.given_up_rounds << " rounds given up, "
            << all.lost_workers << " lost workers" << std::endl;
  if (seeds < kSeeds) return;
  EXPECT_GT(all.lost_servers, 100u);
  EXPECT_GT(all.returned_servers, 20u);
  EXPECT_GT(all.retried_parts, 100u);
  EXPECT_GT(all.given_up_rounds, 50u);
}

// Protocol rule 37: an answer does not say whose pushes are in it, so that one that was in the
// store of a lost server is added to it again.
TEST_F(StoresTest, AnAnswerThatForgetsWhoIsInItIsFound) {
  const auto plant = [](SimulatedNetwork* network) {
    network->tamper().on_send = [](FrameHeader* header) {
      if (header->type == FrameType::kReply) header->row_count = 0;
      return false;
    };
  };
  for (uint64_t seed = 1; seed <= kMostSeeds; ++seed) {
    const SimulationOutcome outcome = SimulateStores(seed, plant);
    if (outcome.failure.empty()) continue;
    std::cout << "found by seed " << seed << ": " << outcome.failure << std::endl;
    EXPECT_EQ(SimulateStores(seed, plant).failure, outcome.failure);
    EXPECT_EQ(SimulateStores(seed).failure, "");
    return;
  }
  FAIL() << "no seed finds it";
}

}  // namespace
}  // namespace byteps

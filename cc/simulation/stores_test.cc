// Asynchronous stores under random faults: of each seed everything holds that store_program.h
// checks. And a planted bug is found.
#include <gtest/gtest.h>

#include <iostream>
#include <string>

#include "cc/base/logging.h"
#include "cc/simulation/testing/seeds.h"

namespace byteps {
namespace {

constexpr uint64_t kMostSeeds = 2000;  // that find a planted bug

SimulationOutcome SimulateStores(uint64_t seed,
                                 const std::function<void(SimulatedNetwork*)>& plant = nullptr) {
  return Simulate(seed, plant, /*keeps_log=*/false, Programs::kStores);
}

class StoresTest : public testing::Test {
  void SetUp() override {
    if (!kCanSimulate) GTEST_SKIP() << "not with a sanitizer";
    SetLogLevel(LogLevel::kError);
  }
};

// Protocol rules 9, 13, 36, 37.
TEST_F(StoresTest, NoSeedLosesAChangeOrAddsOneTwice) {
  SimulationOutcome all;
  if (!RunSeeds(Programs::kStores, &all)) return;
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

// Asynchronous stores under random faults: of each seed everything holds that store_program.h
// checks. And a planted bug is found.
#include <gtest/gtest.h>

#include "cc/simulation/testing/seeds.h"

namespace byteps {
namespace {

class StoresTest : public SimulationTest {};

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
  EXPECT_TRUE(IsFound(plant, Programs::kStores));
}

}  // namespace
}  // namespace byteps

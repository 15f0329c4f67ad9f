// Rounds of a quorum under random faults: of each seed everything holds that quorum_program.h
// checks. And a planted bug is found.
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "cc/simulation/testing/seeds.h"
#include "cc/wire/control.h"

namespace byteps {
namespace {

class QuorumTest : public SimulationTest {};

// Protocol rules 4 and 15.
TEST_F(QuorumTest, NoSeedLosesAStepOrAddsOneTwice) {
  SimulationOutcome all;
  if (!RunSeeds(Programs::kQuorum, &all)) return;
  EXPECT_GT(all.late_changes, 500u);
  EXPECT_GT(all.lost_servers, 100u);
  EXPECT_GT(all.returned_servers, 20u);
  EXPECT_GT(all.retried_parts, 100u);
}

// Protocol rule 15: who is two rounds behind at a lost server gets the newer result only.
TEST_F(QuorumTest, AnEarlierResultThatNobodySendsIsFound) {
  const Plant plant =
      InControl([](const std::string& from, const std::string&, ControlMessage* message) {
        auto* const moved = std::get_if<PartsMoved>(message);
        if (from != "coordinator" || moved == nullptr) return;
        for (PartsMoved::Part& part : moved->parts) part.earlier_from = -1;
      });
  EXPECT_TRUE(IsFound(plant, Programs::kQuorum));
}

}  // namespace
}  // namespace byteps

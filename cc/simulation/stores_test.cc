// Asynchronous stores under random faults: of each seed everything holds that store_program.h
// checks. And a planted bug is found.
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "cc/simulation/testing/seeds.h"
#include "cc/wire/control.h"

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

// Protocol rules 4, 36, 37.
TEST_F(StoresTest, NoSeedWaitsForWhoHasJoined) {
  SimulationOutcome all;
  if (!RunSeeds(Programs::kStoreJoins, &all)) return;
  EXPECT_GT(all.joins, 2000u);
  EXPECT_GT(all.rounds_without_joined, 2000u);
  EXPECT_GT(all.lost_servers, 100u);
  EXPECT_GT(all.returned_servers, 20u);
  EXPECT_GT(all.retried_parts, 100u);
}

bool IsServer(const std::string& process) { return process.rfind("server", 0) == 0; }

// Each of them failed once: a part that a server got from a lost one waited for who had joined
// before, or, in the store after that, for nobody (196, 950). All of them hung where all had joined
// with different numbers of rounds (1, 2, 3).
constexpr uint64_t kSeedsThatFailed[] = {1, 2, 3, 196, 950};

TEST_F(StoresTest, SeedsThatFailedDoSoNoMore) {
  ExpectToPass(kSeedsThatFailed, Programs::kStoreJoins);
}

TEST_F(StoresTest, ASeedDecidesAllThatHappens) { ExpectSeedsToDecide(Programs::kStoreJoins); }

// Protocol rule 36: when all have joined, servers go on counting how many pushes each has made.
TEST_F(StoresTest, AWaitForRoundsThatNobodyMakesUpForIsFound) {
  const auto plant =
      InControl([](const std::string&, const std::string& to, ControlMessage* message) {
        auto* const joined = std::get_if<Joined>(message);
        if (IsServer(to) && joined != nullptr) joined->clocks.clear();
      });
  EXPECT_TRUE(IsFound(plant, Programs::kStoreJoins));
}

// Protocol rule 36: a server that has been started again does not hear who has joined.
TEST_F(StoresTest, ARestartedServerThatWaitsForWhoHasJoinedIsFound) {
  const auto plant =
      InControl([](const std::string&, const std::string& to, ControlMessage* message) {
        auto* const joined = std::get_if<Joined>(message);
        if (IsServer(to) && to.back() == '\'' && joined != nullptr) joined->ranks.clear();
      });
  EXPECT_TRUE(IsFound(plant, Programs::kStoreJoins));
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

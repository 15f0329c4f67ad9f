// Workers that join while others go on, under random faults: of each seed everything holds that
// set_program.h checks. And planted bugs are found.
#include <gtest/gtest.h>

#include <string>
#include <variant>

#include "cc/simulation/testing/seeds.h"
#include "cc/wire/control.h"

namespace byteps {
namespace {

// A round that one had given up, and another one had failed in, before both joined: a server that
// got the part from a lost one took them for zeros (protocol rule 4).
constexpr uint64_t kSeedsThatFailed[] = {10348};

class JoinsTest : public SimulationTest {};

// Protocol rules 4 and 15.
TEST_F(JoinsTest, NoSeedWaitsForWhoHasJoined) {
  SimulationOutcome all;
  if (!RunSeeds(Programs::kJoins, &all)) return;
  EXPECT_GT(all.joins, 2000u);
  EXPECT_GT(all.rounds_without_joined, 2000u);
  EXPECT_GT(all.lost_servers, 100u);
  EXPECT_GT(all.returned_servers, 20u);
  EXPECT_GT(all.retried_parts, 100u);
}

TEST_F(JoinsTest, SeedsThatFailedDoSoNoMore) { ExpectToPass(kSeedsThatFailed, Programs::kJoins); }

TEST_F(JoinsTest, ASeedDecidesAllThatHappens) { ExpectSeedsToDecide(Programs::kJoins); }

bool IsFoundByJoins(const Plant& plant) { return IsFound(plant, Programs::kJoins); }

bool IsServer(const std::string& process) { return process.rfind("server", 0) == 0; }

// Protocol rule 4: a server that has been started again does not hear who has joined.
TEST_F(JoinsTest, ARestartedServerThatWaitsForWhoHasJoinedIsFound) {
  EXPECT_TRUE(IsFoundByJoins(
      InControl([](const std::string&, const std::string& to, ControlMessage* message) {
        const bool is_restarted = IsServer(to) && to.back() == '\'';
        if (is_restarted && std::holds_alternative<Joined>(*message)) *message = ResultProgress();
      })));
}

// Protocol rule 4: who joins does not say which round has failed there, and the withdrawal of that
// comes later.
TEST_F(JoinsTest, AJoinThatMakesAFailedRoundASumIsFound) {
  EXPECT_TRUE(IsFoundByJoins(
      InControl([](const std::string&, const std::string& to, ControlMessage* message) {
        if (auto* const joined = std::get_if<Joined>(message); IsServer(to) && joined != nullptr)
          joined->failed.clear();
      })));
}

// Protocol rule 4: a server does not hear that all have joined, and ends rounds without some.
TEST_F(JoinsTest, AServerThatGoesOnWithoutWhoHasComeBackIsFound) {
  EXPECT_TRUE(IsFoundByJoins(
      InControl([](const std::string&, const std::string& to, ControlMessage* message) {
        const auto* const joined = std::get_if<Joined>(message);
        if (IsServer(to) && joined != nullptr && joined->ranks.empty()) *message = ResultProgress();
      })));
}

}  // namespace
}  // namespace byteps

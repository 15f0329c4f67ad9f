// What the simulation is worth: bugs that are planted in what processes say to each other, and in
// the order in which they are called, are found within kMostSeeds seeds.
#include <gtest/gtest.h>

#include <utility>

#include "cc/simulation/testing/seeds.h"

namespace byteps {
namespace {

class PlantedBugsTest : public SimulationTest {};

bool IsFoundByRounds(const Plant& plant) { return IsFound(plant, Programs::kRounds); }

// Protocol rule 9: a frame of credit is lost.
TEST_F(PlantedBugsTest, LostCreditIsFound) {
  EXPECT_TRUE(IsFoundByRounds([](SimulatedNetwork* network) {
    network->tamper().on_send = [network](FrameHeader* header) {
      return header->type == FrameType::kCredit && network->schedule().Chance(0.05);
    };
  }));
}

// Protocol rule 9: credit is given back twice.
TEST_F(PlantedBugsTest, CreditThatIsGivenBackTwiceIsFound) {
  EXPECT_TRUE(IsFoundByRounds([](SimulatedNetwork* network) {
    network->tamper().on_send = [network](FrameHeader* header) {
      if (header->type == FrameType::kReply && network->schedule().Chance(0.05))
        header->credit_bytes *= 2;
      return false;
    };
  }));
}

// van.h: frames of one priority keep their order.
TEST_F(PlantedBugsTest, AnOvertakenFrameIsFound) {
  EXPECT_TRUE(IsFoundByRounds([](SimulatedNetwork* network) { network->tamper().overtakes = 1; }));
}

// Protocol rule 15: a server says that all workers have a result as soon as it has sent the first
// reply, so that nobody keeps it for those who lack it when that server dies.
TEST_F(PlantedBugsTest, AnEarlyWatermarkIsFound) {
  EXPECT_TRUE(IsFoundByRounds(EarlyWatermarks()));
}

// Protocol rules 15 and 31: a withdrawal is not made again at the new owner of the part.
TEST_F(PlantedBugsTest, AFailoverThatForgetsAWithdrawalIsFound) {
  EXPECT_TRUE(IsFoundByRounds([](SimulatedNetwork* network) {
    network->tamper().on_send = [](FrameHeader* header) {
      return header->type == FrameType::kPush && header->status != StatusCode::kOk &&
             header->placement_version > 0;
    };
  }));
}

// docs/protocol.md, "Threads and locks": what a worker does to others happens without its mutex.
TEST_F(PlantedBugsTest, ACallWithALockedMutexIsFound) {
  EXPECT_TRUE(
      IsFoundByRounds([](SimulatedNetwork* network) { network->tamper().closes_at_once = true; }));
}

// Protocol rule 18: a rank leaves out an entry of its host's launch log.
TEST_F(PlantedBugsTest, AnEntryOfTheLaunchLogThatIsSkippedIsFound) {
  EXPECT_TRUE(IsFoundByRounds(SkippedLaunches()));
}

// Protocol rule 18: a rank launches two collectives in the other order.
TEST_F(PlantedBugsTest, ALaunchOutOfOrderIsFound) {
  EXPECT_TRUE(IsFoundByRounds(InLaunchLog([](LaunchEntries* entries, EventSchedule* schedule) {
    const size_t count = entries->size();
    if (count < 2 || !schedule->Chance(0.1)) return;
    LaunchEntry &first = (*entries)[count - 2], &second = (*entries)[count - 1];
    if (IsCollective(first) && IsCollective(second)) std::swap(first, second);
  })));
}

}  // namespace
}  // namespace byteps

// What the simulation is worth: bugs that are planted in what processes say to each other, and in
// the order in which they are called, are found within kMostSeeds seeds.
#include <gtest/gtest.h>

#include <functional>
#include <iostream>
#include <optional>
#include <string>

#include "cc/base/logging.h"
#include "cc/simulation/testing/simulated_job.h"

namespace byteps {
namespace {

constexpr uint64_t kMostSeeds = 2000;

using Plant = std::function<void(SimulatedNetwork*)>;

// The first seed that finds it; 0: none does.
uint64_t FindBy(const Plant& plant) {
  SetLogLevel(LogLevel::kError);
  for (uint64_t seed = 1; seed <= kMostSeeds; ++seed) {
    const SimulationOutcome outcome = Simulate(seed, plant);
    if (outcome.failure.empty()) continue;
    std::cout << "found by seed " << seed << ": " << outcome.failure << std::endl;
    // It is found again, and not by a fault of its own.
    EXPECT_EQ(Simulate(seed, plant).failure, outcome.failure);
    EXPECT_EQ(Simulate(seed).failure, "");
    return seed;
  }
  return 0;
}

class PlantedBugsTest : public testing::Test {
  void SetUp() override {
    if (!kCanSimulate) GTEST_SKIP() << "not with a sanitizer";
  }
};

// Protocol rule 9: a frame of credit is lost.
TEST_F(PlantedBugsTest, LostCreditIsFound) {
  EXPECT_GT(FindBy([](SimulatedNetwork* network) {
              network->tamper().on_send = [network](FrameHeader* header) {
                return header->type == FrameType::kCredit && network->schedule().Chance(0.05);
              };
            }),
            0u);
}

// Protocol rule 9: credit is given back twice.
TEST_F(PlantedBugsTest, CreditThatIsGivenBackTwiceIsFound) {
  EXPECT_GT(FindBy([](SimulatedNetwork* network) {
              network->tamper().on_send = [network](FrameHeader* header) {
                if (header->type == FrameType::kReply && network->schedule().Chance(0.05))
                  header->credit_bytes *= 2;
                return false;
              };
            }),
            0u);
}

// van.h: frames of one priority keep their order.
TEST_F(PlantedBugsTest, AnOvertakenFrameIsFound) {
  EXPECT_GT(FindBy([](SimulatedNetwork* network) { network->tamper().overtakes = 1; }), 0u);
}

// Protocol rule 15: a server says that all workers have a result as soon as it has sent the first
// reply, so that nobody keeps it for those who lack it when that server dies.
TEST_F(PlantedBugsTest, AnEarlyWatermarkIsFound) {
  EXPECT_GT(
      FindBy([](SimulatedNetwork* network) {
        network->tamper().after_send = [](const FrameHeader& header) -> std::optional<FrameHeader> {
          if (header.type != FrameType::kReply || header.round == 0) return std::nullopt;
          FrameHeader early = header;
          --early.round;
          early.credit_bytes = 0;
          early.watermark = header.round + 1;
          return early;
        };
      }),
      0u);
}

// Protocol rules 15 and 31: a withdrawal is not made again at the new owner of the part.
TEST_F(PlantedBugsTest, AFailoverThatForgetsAWithdrawalIsFound) {
  EXPECT_GT(FindBy([](SimulatedNetwork* network) {
              network->tamper().on_send = [](FrameHeader* header) {
                return header->type == FrameType::kPush && header->status != StatusCode::kOk &&
                       header->placement_version > 0;
              };
            }),
            0u);
}

// docs/protocol.md, "Threads and locks": what a worker does to others happens without its mutex.
TEST_F(PlantedBugsTest, ACallWithALockedMutexIsFound) {
  EXPECT_GT(FindBy([](SimulatedNetwork* network) { network->tamper().closes_at_once = true; }), 0u);
}

}  // namespace
}  // namespace byteps

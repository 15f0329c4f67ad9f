// Rounds of a quorum under random faults: of each seed everything holds that quorum_program.h
// checks. And a planted bug is found.
#include <gtest/gtest.h>

#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <variant>

#include "cc/base/logging.h"
#include "cc/simulation/testing/seeds.h"
#include "cc/wire/control.h"

namespace byteps {
namespace {

constexpr uint64_t kMostSeeds = 2000;  // that find a planted bug

class QuorumTest : public testing::Test {
  void SetUp() override {
    if (!kCanSimulate) GTEST_SKIP() << "not with a sanitizer";
    SetLogLevel(LogLevel::kError);
  }
};

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
  const auto plant = [](SimulatedNetwork* network) {
    network->tamper().on_frame = [](const std::string& from, const std::string&,
                                    OutgoingFrame* frame) {
      if (from != "coordinator" || frame->payload == nullptr) return;
      ControlMessage message;
      const std::string sent(static_cast<const char*>(frame->payload), frame->header.payload_bytes);
      if (!DecodeControl(sent, &message).ok() || !std::holds_alternative<PartsMoved>(message))
        return;
      for (PartsMoved::Part& part : std::get<PartsMoved>(message).parts) part.earlier_from = -1;
      const auto bytes = std::make_shared<const std::string>(EncodeControl(message));
      frame->payload = bytes->data();
      frame->header.payload_bytes = bytes->size();
      frame->keep_alive = bytes;
    };
  };
  for (uint64_t seed = 1; seed <= kMostSeeds; ++seed) {
    const SimulationOutcome outcome = Simulate(seed, plant, /*keeps_log=*/false, Programs::kQuorum);
    if (outcome.failure.empty()) continue;
    std::cout << "found by seed " << seed << ": " << outcome.failure << std::endl;
    EXPECT_EQ(Simulate(seed, nullptr, false, Programs::kQuorum).failure, "");
    return;
  }
  FAIL() << "no seed finds it";
}

}  // namespace
}  // namespace byteps

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
  const auto plant = [](SimulatedNetwork* network) {
    network->tamper().on_frame = [](const std::string& from, const std::string&,
                                    OutgoingFrame* frame) {
      if (from != "coordinator" || frame->payload == nullptr) return;
      ControlMessage message;
      const std::string sent(static_cast<const char*>(frame->payload), frame->header.payload_bytes);
      if (!DecodeControl(sent, &message).ok() || !std::holds_alternative<PartsMoved>(message))
        return;
      for (PartsMoved::Part& part : std::get<PartsMoved>(message).parts) part.earlier_from = -1;
      ReplacePayload(frame, EncodeControl(message));
    };
  };
  EXPECT_TRUE(IsFound(plant, Programs::kQuorum));
}

}  // namespace
}  // namespace byteps

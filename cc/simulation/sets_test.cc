// Rounds of all kinds among process sets under random faults: of each seed everything holds that
// set_program.h checks. And planted bugs are found.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <set>
#include <string>
#include <variant>

#include "cc/base/tensor_description.h"
#include "cc/simulation/testing/seeds.h"
#include "cc/wire/control.h"

namespace byteps {
namespace {

class SetsTest : public SimulationTest {};

// Protocol rules 3 to 5, 13 and 15.
TEST_F(SetsTest, NoSeedMixesSetsOrRounds) {
  SimulationOutcome all;
  if (!RunSeeds(Programs::kSets, &all)) return;
  EXPECT_GT(all.set_exchanges, 2000u);
  EXPECT_GT(all.row_exchanges, 2000u);
  EXPECT_GT(all.coded_sums, 1000u);
  EXPECT_GT(all.given_up_rounds, 200u);
  EXPECT_GT(all.lost_servers, 100u);
  EXPECT_GT(all.returned_servers, 20u);
  EXPECT_GT(all.retried_parts, 100u);
}

// Protocol rules 3 to 5, 13, 15 and 18.
TEST_F(SetsTest, NoSeedMixesSetsAndGroupsOfGpus) {
  SimulationOutcome all;
  if (!RunSeeds(Programs::kGpuSets, &all)) return;
  EXPECT_GT(all.set_exchanges, 1000u);
  EXPECT_GT(all.gpu_exchanges, 500u);
}

TEST_F(SetsTest, ASeedDecidesAllThatHappens) { ExpectSeedsToDecide(Programs::kSets); }

bool IsFoundBySets(const Plant& plant) { return IsFound(plant, Programs::kSets); }

// Protocol rules 3 and 15: a server counts members wrongly, and says that all have a result when
// the first one is about to get it.
TEST_F(SetsTest, AMemberThatIsNotCountedIsFound) { EXPECT_TRUE(IsFoundBySets(EarlyWatermarks())); }

// Protocol rule 31: a member's withdrawal of a round does not leave it.
TEST_F(SetsTest, AWithdrawalThatNobodySendsIsFound) {
  EXPECT_TRUE(IsFoundBySets([](SimulatedNetwork* network) {
    network->tamper().on_send = [](FrameHeader* header) {
      return header->type == FrameType::kPush && header->status != StatusCode::kOk;
    };
  }));
}

// Protocol rule 15: a worker says that it has the result of an alltoall for the others, too.
TEST_F(SetsTest, AnAlltoallThatIsTakenForKeptIsFound) {
  const auto keys = std::make_shared<std::set<uint64_t>>();
  EXPECT_TRUE(IsFoundBySets(
      InControl([keys](const std::string&, const std::string&, ControlMessage* message) {
        if (const auto* request = std::get_if<DeclareRequest>(message)) {
          for (const TensorDescription& tensor : request->tensors) {
            if (tensor.kind == ExchangeKind::kAllToAll) keys->insert(KeyOfName(tensor.name));
          }
        } else if (auto* progress = std::get_if<PartProgress>(message)) {
          for (PartProgress::Part& part : progress->parts)
            part.has_result = part.has_result || (part.next_round > 0 && keys->count(part.key) > 0);
        }
      })));
}

// Protocol rule 5: now and then a worker gets the rows that an alltoall has for another one.
TEST_F(SetsTest, RowsThatGoToTheWrongWorkerAreFound) { EXPECT_TRUE(IsFoundBySets(WrongRows())); }

// Protocol rule 18: the same where sets are on hosts with GPUs.
TEST_F(SetsTest, ASkippedLaunchIsFound) {
  EXPECT_TRUE(IsFound(SkippedLaunches(), Programs::kGpuSets));
}

// Protocol rule 5: now and then a worker's rows of a sum, which begin with their number, are those
// that come after them.
TEST_F(SetsTest, RowsUnderOtherIndicesAreFound) {
  EXPECT_TRUE(IsFoundBySets([](SimulatedNetwork* network) {
    network->tamper().on_frame = [=](const std::string&, const std::string&, OutgoingFrame* frame) {
      const FrameHeader& header = frame->header;
      const bool has_rows = header.type == FrameType::kPush && header.payload_offset == 0 &&
                            header.row_count > 0 && header.row_count < 128;
      if (!has_rows || frame->payload == nullptr || !network->schedule().Chance(0.05)) return;
      std::string bytes(static_cast<const char*>(frame->payload), header.payload_bytes);
      if (bytes[0] != static_cast<char>(header.row_count) || bytes[1] != 0) return;
      ++bytes[1];
      ReplacePayload(frame, std::move(bytes));
    };
  }));
}

}  // namespace
}  // namespace byteps

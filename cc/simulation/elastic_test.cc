// Elastic jobs under random faults: of each seed everything holds that elastic_job.h checks. And
// planted bugs are found.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <variant>

#include "cc/simulation/testing/seeds.h"
#include "cc/wire/control.h"

namespace byteps {
namespace {

// Each of them failed once: a worker that did not get in, because another one listened at a lost
// server's port, said goodbye to the others (5506); a server that was cut off told the workers that
// the scheduler was lost, which they heard (24073), and that ended the job (27870, 30226). In
// 123378 the coordinator of an epoch had ended already. In 300351 a worker was stopped while others
// committed without it, and was the only one left.
constexpr uint64_t kSeedsThatFailed[] = {5506, 24073, 27870, 30226, 123378, 300351};

class ElasticTest : public SimulationTest {};

// Protocol rules 15, 16, 20, 21.
TEST_F(ElasticTest, NoSeedMixesEpochsOrEndsWithoutAWorker) {
  SimulationOutcome all;
  if (!RunSeeds(Programs::kElastic, &all)) return;
  EXPECT_GT(all.epochs, 700u);
  EXPECT_GT(all.rollbacks, 300u);
  EXPECT_GT(all.failed_starts, 40u);
  EXPECT_GT(all.lost_workers, 150u);
  EXPECT_GT(all.cut_off_processes, 100u);
  EXPECT_GT(all.killed_servers, 50u);
  EXPECT_GT(all.lost_servers, 30u);
  EXPECT_GT(all.new_workers, 200u);
  EXPECT_GT(all.workers_sent_away, 30u);
  EXPECT_GT(all.given_up_rounds, 100u);
  EXPECT_GT(all.coded_sums, 300u);
  EXPECT_GT(all.row_exchanges, 1000u);
  EXPECT_GT(all.gpu_exchanges, 1000u);
  EXPECT_GT(all.lost_gpu_workers, 10u);
  EXPECT_GT(all.resumed_tables, 50u);
}

TEST_F(ElasticTest, SeedsThatFailedDoSoNoMore) {
  ExpectToPass(kSeedsThatFailed, Programs::kElastic);
}

TEST_F(ElasticTest, ASeedDecidesAllThatHappens) { ExpectSeedsToDecide(Programs::kElastic); }

// Protocol rule 16: two epochs have the same number, and ports.
TEST_F(ElasticTest, AnEpochWithTheNumberOfTheOneBeforeIsFound) {
  const auto plant = [](SimulatedNetwork* network) { network->tamper().repeats_epochs = true; };
  EXPECT_TRUE(IsFound(plant, Programs::kElastic));
}

// Protocol rule 16: a handshake does not compare epochs.
TEST_F(ElasticTest, AProcessOfAnEarlierEpochThatIsLetInIsFound) {
  const auto plant = [](SimulatedNetwork* network) {
    const auto newest = std::make_shared<uint32_t>(0);
    network->tamper().on_hello = [newest](Hello* hello) {
      *newest = std::max(*newest, hello->epoch);
      hello->epoch = *newest;
    };
  };
  EXPECT_TRUE(IsFound(plant, Programs::kElastic));
}

// Protocol rule 18: the same on hosts with GPUs as in a job that is not elastic.
TEST_F(ElasticTest, ASkippedLaunchIsFound) {
  EXPECT_TRUE(IsFound(SkippedLaunches(), Programs::kElastic));
}

// Protocol rule 29: now and then one worker gets other bytes of a compressed sum.
TEST_F(ElasticTest, ASumThatIsNotTheSameOnAllWorkersIsFound) {
  EXPECT_TRUE(IsFound(
      [](SimulatedNetwork* network) {
        network->tamper().on_frame = [network](const std::string&, const std::string&,
                                               OutgoingFrame* frame) {
          const FrameHeader& header = frame->header;
          const bool is_coded = header.type == FrameType::kReply && header.codec != CodecId::kRaw;
          if (!is_coded || frame->payload == nullptr || !network->schedule().Chance(0.05)) return;
          std::string bytes(static_cast<const char*>(frame->payload), header.payload_bytes);
          bytes.back() ^= 1;
          ReplacePayload(frame, std::move(bytes));
        };
      },
      Programs::kElastic));
}

// Protocol rule 5: now and then a worker's rows are lost, and zeros are in their place.
TEST_F(ElasticTest, RowsThatAreLostAreFound) {
  EXPECT_TRUE(IsFound(
      [](SimulatedNetwork* network) {
        network->tamper().on_frame = [network](const std::string&, const std::string&,
                                               OutgoingFrame* frame) {
          FrameHeader& header = frame->header;
          const bool has_rows = header.type == FrameType::kPush && header.row_count > 0;
          if (has_rows && frame->payload != nullptr && network->schedule().Chance(0.02))
            ReplacePayload(frame, std::string(header.payload_bytes, '\0'));
        };
      },
      Programs::kElastic));
}

// Protocol rule 5: the same with the rows of an alltoall as in a job that is not elastic.
TEST_F(ElasticTest, RowsThatGoToTheWrongWorkerAreFound) {
  EXPECT_TRUE(IsFound(WrongRows(), Programs::kElastic));
}

// Changes the values of a request to a table, of this kind.
Plant InTableRequests(TableRequest::Kind kind,
                      const std::function<void(std::string* request)>& change) {
  return [=](SimulatedNetwork* network) {
    network->tamper().on_frame = [=](const std::string& from, const std::string&,
                                     OutgoingFrame* frame) {
      const FrameHeader& header = frame->header;
      const bool is_request = header.type == FrameType::kPush && frame->payload != nullptr &&
                              header.payload_bytes >= 32 && from.rfind("worker", 0) == 0;
      if (!is_request) return;
      std::string request(static_cast<const char*>(frame->payload), header.payload_bytes);
      if (NumberAt<uint32_t>(request, 0) != static_cast<uint32_t>(kind)) return;
      change(&request);
      ReplacePayload(frame, std::move(request));
    };
  };
}

// Protocol rule 40: a server does not note where rows are at a commit.
TEST_F(ElasticTest, ACommitOfATableThatIsNotNotedIsFound) {
  EXPECT_TRUE(IsFound(InTableRequests(TableRequest::Kind::kMark,
                                      [](std::string* request) {
                                        const auto kind =
                                            static_cast<uint32_t>(TableRequest::Kind::kState);
                                        std::memcpy(request->data(), &kind, sizeof(kind));
                                      }),
                      Programs::kElastic));
}

// Protocol rule 21: nobody hears that a worker is lost, and so the epoch does not end.
TEST_F(ElasticTest, ALossOfWhichNobodyIsToldIsFound) {
  const Plant plant =
      InControl([](const std::string& from, const std::string&, ControlMessage* message) {
        const auto* const lost = std::get_if<PeerLost>(message);
        if (from == "coordinator" && lost != nullptr && lost->role == Role::kWorker)
          *message = ResultProgress();
      });
  EXPECT_TRUE(IsFound(plant, Programs::kElastic));
}

}  // namespace
}  // namespace byteps

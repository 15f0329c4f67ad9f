// Random programs, random faults: of each seed everything holds that simulated_job.h checks.
// seeds.h says how to run others.
#include <gtest/gtest.h>

#include "cc/simulation/testing/seeds.h"

namespace byteps {
namespace {

// Beyond these, and each of them failed once: a late question over a connection that another one
// had replaced (protocol rule 31), credit that several connections kept back (protocol rule 9),
// credit for the result of a part that had moved on, which had taken none, a push of a round after
// which others had given up two at a server that was lost (protocol rule 31), a result of a lost
// server that only one had who had left the training since (protocol rule 15).
// From 403 on, of hosts with GPUs (protocol rule 18): failures of a round that the launch log
// dropped (403, 1243), a tensor that was placed after its worker had left the training (2258), a
// name that was used again while the log still had its earlier round (1558, 2398, 4463), a round
// that was given up and hid the one before from a server's successor (5458). In 3784 credit was
// looked at while a link was frozen.
constexpr uint64_t kSeedsThatFailed[] = {734,  796,  4525, 1352, 2244, 403, 1243,
                                         1558, 2258, 2398, 3784, 4463, 5458};

class FaultsTest : public SimulationTest {};

TEST_F(FaultsTest, NoSeedBreaksAJob) {
  SimulationOutcome all;
  if (!RunSeeds(Programs::kRounds, &all)) return;
  EXPECT_GT(all.lost_servers, 100u);
  EXPECT_GT(all.returned_servers, 20u);
  EXPECT_GT(all.retried_parts, 100u);
  EXPECT_GT(all.given_up_rounds, 100u);
  EXPECT_GT(all.left_trainings, 50u);
  EXPECT_GT(all.lost_workers, 5u);
  EXPECT_GT(all.gpu_exchanges, 1000u);
  EXPECT_GT(all.lost_gpu_workers, 3u);
  EXPECT_GT(all.row_sums, 100u);
  EXPECT_GT(all.coded_sums, 100u);
  EXPECT_GT(all.backup_averages, 50u);
}

TEST_F(FaultsTest, SeedsThatFailedDoSoNoMore) { ExpectToPass(kSeedsThatFailed, Programs::kRounds); }

TEST_F(FaultsTest, ASeedDecidesAllThatHappens) { ExpectSeedsToDecide(Programs::kRounds); }

}  // namespace
}  // namespace byteps

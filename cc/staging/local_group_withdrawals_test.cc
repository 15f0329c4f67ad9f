// Rounds that one rank gives up before it has begun them: the others of its host, which wait for
// it, hear of it as other hosts do.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cc/staging/testing/local_group_job.h"

namespace byteps {
namespace {

class LocalGroupWithdrawalsTest : public LocalGroupJob, public ::testing::WithParamInterface<bool> {
 protected:
  static constexpr int64_t kElements = 3000;  // three parts
  static constexpr int kTensors = 4;

  LocalGroupWithdrawalsTest() : LocalGroupJob(GetParam()) {}

  static Status Exchange(Rank& rank, const std::string& name, int64_t elements = kElements) {
    return rank.Send(Tensor(name, elements), std::vector<float>(elements, 1))->Wait();
  }

  // The first round of a name, and a later one. The name works again afterwards.
  void ExpectAllAreTold(int32_t giver_up) {
    const std::string expected =
        "worker " + std::to_string(giver_up) + " has given it up: no such operation";
    OnEachRank([&](Rank& mine, int32_t rank) {
      for (int i = 0; i < 2 * kTensors; ++i) {
        const std::string name = "t" + std::to_string(i % kTensors);
        if (rank == giver_up) {
          mine.worker->GiveUpRounds({name}, "no such operation");
        } else {
          const Status status = Exchange(mine, name);
          EXPECT_NE(status.message().find(expected), std::string::npos)
              << rank << ": " << status.ToString();
        }
        // Who came to the round only after the next had begun might learn no more than that.
        ASSERT_TRUE(Exchange(mine, name + "/go on", 1).ok());
        const auto sent = mine.Send(Tensor(name, kElements), std::vector<float>(kElements, 1));
        const Status status = sent->Wait();
        ASSERT_TRUE(status.ok()) << rank << ": " << status.ToString();
        EXPECT_EQ(sent->output->Get(), std::vector<float>(kElements, size()));
      }
    });
    EXPECT_EQ(coordinator_->failure(), "");
  }
};

INSTANTIATE_TEST_SUITE_P(With, LocalGroupWithdrawalsTest, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Gpus" : "Arithmetic"; });

TEST_P(LocalGroupWithdrawalsTest, ByTheFirstOfAHost) {
  StartJob({"a", "a", "a"});
  if (!IsSkipped()) ExpectAllAreTold(0);
}

TEST_P(LocalGroupWithdrawalsTest, ByAnotherOne) {
  StartJob({"a", "a", "a"});
  if (!IsSkipped()) ExpectAllAreTold(2);
}

TEST_P(LocalGroupWithdrawalsTest, WhereSeveralHostsExchange) {
  StartJob({"a", "b", "a"});
  if (!IsSkipped()) ExpectAllAreTold(2);
}

// The others connect to it meanwhile, and wait.
TEST_P(LocalGroupWithdrawalsTest, BeforeItHasAGroup) {
  without_group_ = 1;
  StartJob({"a", "a"});
  if (IsSkipped()) return;
  ranks_[1].worker->GiveUpRounds({"t"}, "no such operation");
  const auto waits = ranks_[0].Send(Tensor("t", 4), std::vector<float>(4));
  StartGroup(1);
  EXPECT_NE(waits->Wait().message().find("worker 1 has given it up: no such operation"),
            std::string::npos);
  OnEachRank([&](Rank& mine, int32_t) { EXPECT_TRUE(Exchange(mine, "t").ok()); });
}

}  // namespace
}  // namespace byteps

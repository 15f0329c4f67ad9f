// Error feedback of compressed sums, in whole jobs over real sockets.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cc/coordinator/state/placement.h"
#include "cc/engine/testing/compressed_sums.h"
#include "cc/engine/testing/cutting_proxy.h"
#include "cc/engine/testing/killable_job.h"

namespace byteps {
namespace {

// What workers make of a tensor from round to round, written down as what each of them does.
class Oracle {
 public:
  Oracle(std::string name, std::string codec, int workers)
      : name_(std::move(name)),
        codec_(std::move(codec)),
        residuals_(workers, std::vector<float>(kElements)) {}

  std::vector<float> NextSum(uint64_t round) {
    TensorDescription tensor;
    tensor.shape = {static_cast<int64_t>(kElements)};
    PartSeed seed;
    seed.key = KeyOfName(name_);
    seed.round = round;
    std::vector<float> result;
    for (const uint64_t elements : CutTensor(tensor, kTestPartBytes)) {
      std::vector<std::vector<float>> sums;
      for (size_t rank = 0; rank < residuals_.size(); ++rank)
        sums.push_back(FeedBack(static_cast<int>(rank), result.size(), elements, seed));
      const std::vector<float> part = ExpectedSum(codec_, sums, seed);
      result.insert(result.end(), part.begin(), part.end());
      ++seed.part;
    }
    return result;
  }

 private:
  // What a worker encodes.
  std::vector<float> FeedBack(int rank, size_t first, uint64_t elements, const PartSeed& seed) {
    const std::vector<float> values = Gradient(rank, seed.round);
    float* const residual = residuals_[rank].data() + first;
    std::vector<float> sums(elements);
    for (uint64_t i = 0; i < elements; ++i) sums[i] = values[first + i] + residual[i];
    std::vector<float> decoded(elements);
    DecodeTo(codec_, EncodedBy(codec_, sums, seed, rank), DecodeMode::kStore, &decoded);
    for (uint64_t i = 0; i < elements; ++i) residual[i] = sums[i] - decoded[i];
    return sums;
  }

  const std::string name_;
  const std::string codec_;
  std::vector<std::vector<float>> residuals_;
};

template <typename AnyJob>
void ExpectRound(AnyJob& job, const std::string& name, const std::string& codec, Oracle& oracle,
                 uint64_t round) {
  std::vector<std::shared_ptr<Pending>> sent;
  for (int rank = 0; rank < job.num_workers(); ++rank)
    sent.push_back(SendAs(job.worker(rank), name, codec, Gradient(rank, round)));
  ExpectAllTheSame(sent);
  const std::vector<float> expected = oracle.NextSum(round);
  ASSERT_EQ(std::memcmp(sent[0]->output.data(), expected.data(), kElements * sizeof(float)), 0)
      << codec << ", round " << round << ": " << sent[0]->output[0] << " instead of "
      << expected[0];
}

class FeedbackTest : public ::testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Codecs, FeedbackTest,
                         ::testing::Values("onebit", "int4:feedback=1", "topk", "randomk"),
                         [](const auto& info) {
                           return std::string(info.param, std::strcspn(info.param, ":"));
                         });

TEST_P(FeedbackTest, EveryWorkerHasTheBitsOfTheOracle) {
  for (const bool on_one_host : {false, true}) {
    Job job(3, 2, Options(), on_one_host);
    Oracle oracle("t", GetParam(), 3);
    for (uint64_t round = 0; round < 5; ++round) {
      ExpectRound(job, "t", GetParam(), oracle, round);
      ASSERT_FALSE(HasFatalFailure());
    }
  }
}

// What was pushed to it is pushed again, to another one (protocol rule 15).
TEST_P(FeedbackTest, ALostServerChangesNoBit) {
  KillableJob job(3, 2, Options());
  Oracle oracle("t", GetParam(), 3);
  uint64_t round = 0;
  ExpectRound(job, "t", GetParam(), oracle, round++);
  job.gate(0, 0).Admit(kAll, 5000);
  job.gate(0, 1).Admit(1000, kAll);
  job.gate(0, 2).Admit(kAll, 0);
  std::thread killer([&] {
    while (!job.gate(0, 1).is_shut()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    job.Kill(0);
  });
  ExpectRound(job, "t", GetParam(), oracle, round++);
  killer.join();
  for (int more = 0; more < 3; ++more) ExpectRound(job, "t", GetParam(), oracle, round++);
}

// What has arrived of a push stays there; it goes on in the middle.
TEST_P(FeedbackTest, ABrokenConnectionChangesNoBit) {
  constexpr int kCuts = 20;
  std::vector<std::unique_ptr<CuttingProxy>> proxies;
  EngineOptions options = Options();
  options.network.read_peer_memory = false;
  Job job(2, 2, options, /*on_one_host=*/true, [&](const Endpoint& endpoint) {
    proxies.push_back(std::make_unique<CuttingProxy>(endpoint, Seed() + proxies.size()));
    return proxies.back()->endpoint();
  });
  // The first one is the coordinator's.
  for (size_t i = 1; i < proxies.size(); ++i) proxies[i]->CutWithin(100 * 1000);
  const auto cuts = [&] {
    int sum = 0;
    for (const auto& proxy : proxies) sum += proxy->cuts();
    return sum;
  };
  Oracle oracle("t", GetParam(), 2);
  for (uint64_t round = 0; cuts() < kCuts; ++round) {
    ExpectRound(job, "t", GetParam(), oracle, round);
    ASSERT_FALSE(HasFatalFailure());
  }
}

TEST_P(FeedbackTest, BeginsAtZeroAfterAnotherCodec) {
  Job job(2, 1, Options());
  for (uint64_t round = 0; round < 6; ++round) {
    Oracle oracle("t", GetParam(), 2);
    ExpectRound(job, "t", GetParam(), oracle, round++);
    ExpectRound(job, "t", GetParam(), oracle, round++);
    ASSERT_FALSE(HasFatalFailure());
    ExpectAllTheSame({SendAs(job.worker(0), "t", "int8", Gradient(0, round)),
                      SendAs(job.worker(1), "t", "int8", Gradient(1, round))});
  }
}

}  // namespace
}  // namespace byteps

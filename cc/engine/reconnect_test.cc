// Connections that break while both of their processes live: thousands of cuts at random bytes, in
// the middle of pushes, replies and control frames, and every sum exact. Not in a thread of the
// processes, but in a proxy, so that the kernel tells both ends as it does in a real break.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cc/base/clock.h"
#include "cc/engine/cutting_proxy.h"
#include "cc/engine/test_job.h"

namespace byteps {
namespace {

// Drawn, printed, and taken from the environment to replay it.
uint64_t Seed() {
  const char* const given = std::getenv("BYTEPS_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::stoull(given) : std::random_device()();
  std::cout << "BYTEPS_TEST_SEED=" << seed << std::endl;
  return seed;
}

// A proxy in front of everyone who listens.
class Proxies {
 public:
  explicit Proxies(uint64_t seed) : random_(seed) {}

  Endpoint By(const Endpoint& target) {
    proxies_.push_back(std::make_unique<CuttingProxy>(target, random_()));
    return proxies_.back()->endpoint();
  }
  // The first one is the coordinator's.
  void CutWithin(uint64_t data, uint64_t control) {
    for (size_t i = 0; i < proxies_.size(); ++i) proxies_[i]->CutWithin(i == 0 ? control : data);
  }
  int cuts() const {
    int sum = 0;
    for (const auto& proxy : proxies_) sum += proxy->cuts();
    return sum;
  }
  int control_cuts() const { return proxies_[0]->cuts(); }

 private:
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<CuttingProxy>> proxies_;
};

struct Shape {
  int workers;
  int servers;
  int connections;
  bool in_rank_order;
  bool tls = false;
};

class ReconnectTest : public ::testing::TestWithParam<Shape> {};

// Sums, a broadcast and a gather in each round, and a tensor that nobody knew, so that the
// coordinator has something to say.
void ExchangeRound(Worker& worker, int rank, int workers, int round) {
  const std::vector<size_t> counts = {0, 1, 8192, 8193, 60000};
  std::vector<std::shared_ptr<Pending>> sums;
  for (size_t i = 0; i < counts.size(); ++i)
    sums.push_back(Send(worker, "sum" + std::to_string(i), Values(rank, counts[i])));
  const auto fresh = Send(worker, "round" + std::to_string(round % 500), Values(rank, 100));
  auto weights =
      std::make_shared<Pending>(rank == 1 ? Values(round % 7, 20000) : std::vector<float>(20000));
  ExchangeRequest broadcast = Request("weights", weights, ExchangeKind::kBroadcast);
  broadcast.tensor.root_rank = 1;
  worker.Enqueue(std::move(broadcast));
  const auto rows = Send(worker, "rows", Values(rank, 3000 + rank), ExchangeKind::kGather);
  for (size_t i = 0; i < counts.size(); ++i) {
    const Status status = sums[i]->Wait();
    ASSERT_TRUE(status.ok()) << status.ToString();
    ExpectSum(sums[i]->output, workers, counts[i]);
  }
  ASSERT_TRUE(fresh->Wait().ok());
  ExpectSum(fresh->output, workers, 100);
  ASSERT_TRUE(weights->Wait().ok());
  ASSERT_EQ(weights->output, Values(round % 7, 20000));
  ASSERT_TRUE(rows->Wait().ok());
  std::vector<float> expected;
  for (int from = 0; from < workers; ++from) {
    const std::vector<float> values = Values(from, 3000 + from);
    expected.insert(expected.end(), values.begin(), values.end());
  }
  rows->output.resize(expected.size());
  ASSERT_EQ(rows->output, expected);
}

TEST_P(ReconnectTest, SumsAreExactWhateverIsCut) {
  const Shape shape = GetParam();
  Proxies proxies(Seed());
  EngineOptions options;
  options.part_bytes = 32 * 1024;
  options.connections_per_server = shape.connections;
  options.deterministic = shape.in_rank_order;
  options.read_peer_memory = false;
  options.tls = shape.tls;
  if (shape.tls) options.secret = "what all of the job know";
  Job job(shape.workers, shape.servers, options, /*on_one_host=*/true,
          [&](const Endpoint& endpoint) { return proxies.By(endpoint); });
  proxies.CutWithin(400 * 1000, 8 * 1000);
  const char* const asked = std::getenv("BYTEPS_TEST_CUTS");
  const int wanted = asked != nullptr ? std::atoi(asked) : 300;
  std::atomic<int> ended{0};
  const int64_t deadline_ns = MonotonicNanos() + SecondsToNanos(asked != nullptr ? 3600 : 60);
  int rounds = 0;
  for (; proxies.cuts() < wanted && MonotonicNanos() < deadline_ns; ++rounds) {
    job.OnEachWorker(
        [&](Worker& worker, int rank) { ExchangeRound(worker, rank, shape.workers, rounds); });
    ASSERT_FALSE(HasFatalFailure());
  }
  proxies.CutWithin(0, 0);
  std::cout << proxies.cuts() << " cuts, " << proxies.control_cuts()
            << " of them of control connections, in " << rounds << " rounds" << std::endl;
  EXPECT_GE(proxies.cuts(), wanted) << "in " << rounds << " rounds";
  EXPECT_GT(proxies.control_cuts(), 0);
}

INSTANTIATE_TEST_SUITE_P(Jobs, ReconnectTest,
                         ::testing::Values(Shape{2, 1, 1, false}, Shape{3, 2, 1, false},
                                           Shape{2, 2, 3, false}, Shape{3, 2, 2, true},
                                           Shape{2, 1, 2, false, /*tls=*/true}),
                         [](const auto& info) {
                           return std::to_string(info.param.workers) + "Workers" +
                                  std::to_string(info.param.servers) + "Servers" +
                                  std::to_string(info.param.connections) + "Connections" +
                                  (info.param.in_rank_order ? "InRankOrder" : "") +
                                  (info.param.tls ? "WithTls" : "");
                         });

}  // namespace
}  // namespace byteps

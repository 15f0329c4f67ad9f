// Connections that break while both of their processes live: thousands of cuts at random bytes, in
// the middle of pushes, replies and control frames, and every sum exact. Not in a thread of the
// processes, but in a proxy, so that the kernel tells both ends as it does in a real break.
#include <atomic>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "cc/base/clock.h"
#include "cc/engine/testing/cutting_proxy.h"
#include "cc/engine/testing/test_job.h"

namespace byteps {
namespace {

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

TEST_P(ReconnectTest, SumsAreExactWhateverIsCut) {
  const Shape shape = GetParam();
  Proxies proxies(Seed());
  EngineOptions options;
  options.flow.part_bytes = 32 * 1024;
  options.network.connections_per_server = shape.connections;
  options.deterministic = shape.in_rank_order;
  options.network.read_peer_memory = false;
  options.security.tls = shape.tls;
  if (shape.tls) options.security.secret = "what all of the job know";
  Job job(shape.workers, shape.servers, options, /*on_one_host=*/true,
          [&](const Endpoint& endpoint) { return proxies.By(endpoint); });
  proxies.CutWithin(400 * 1000, 8 * 1000);
  const std::optional<int> asked = Asked("BYTEPS_TEST_CUTS");
  const int wanted = asked.value_or(300);
  std::atomic<int> ended{0};
  const int64_t deadline_ns = MonotonicNanos() + SecondsToNanos(asked.has_value() ? 3600 : 60);
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

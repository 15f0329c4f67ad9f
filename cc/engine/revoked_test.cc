// What an exchange that has failed still had to send, and was still receiving.
#include <algorithm>
#include <memory>

#include "cc/engine/testing/gated_proxy.h"
#include "cc/engine/testing/test_job.h"

namespace byteps {
namespace {

constexpr size_t kElements = 4 << 20;
constexpr uint64_t kBytes = kElements * sizeof(float);

// Two workers with a proxy in front of their server.
class RevokedTest : public ::testing::Test {
 protected:
  RevokedTest() {
    EngineOptions options;
    options.timeouts.operation_timeout = 2;
    options.network.connections_per_server = 1;
    options.flow.credit_bytes = kBytes;
    options.flow.part_bytes = 256 * 1024;
    options.network.read_peer_memory = false;
    int connection = 0;
    job_ = std::make_unique<Job>(2, 1, options, true, [&](const Endpoint& endpoint) {
      if (++connection == 1) return endpoint;  // the coordinator's
      proxy_ = std::make_unique<GatedProxy>(endpoint);
      return proxy_->endpoint();
    });
  }

  std::shared_ptr<Pending> Exchange(int rank, size_t elements, int32_t priority = 0) {
    auto pending = std::make_shared<Pending>(Values(rank, elements));
    std::fill(pending->output.begin(), pending->output.end(), -1.0f);
    ExchangeRequest request = Request("t" + std::to_string(elements), pending);
    request.priority = priority;
    job_->worker(rank).Enqueue(std::move(request));
    return pending;
  }

  void ExchangeWell(size_t elements) {
    const auto one = Exchange(0, elements), other = Exchange(1, elements);
    for (const auto& each : {one, other}) {
      const Status status = each->Wait();
      ASSERT_TRUE(status.ok()) << status.ToString();
      ExpectSum(each->output, 2, elements);
    }
  }

  std::unique_ptr<GatedProxy> proxy_;
  std::unique_ptr<Job> job_;
};

// Nor is the credit lost that it was sent with.
TEST_F(RevokedTest, WhatAFailedExchangeHasNotSentStaysAway) {
  ExchangeWell(1000);
  const uint64_t before = job_->worker(0).counters().van.payload_bytes_sent;
  proxy_->Admit(0, GatedProxy::kAll);
  const auto failed = Exchange(0, kElements);
  EXPECT_EQ(failed->Wait().code(), StatusCode::kDeadlineExceeded);
  proxy_->Admit(GatedProxy::kAll, GatedProxy::kAll);
  EXPECT_FALSE(Exchange(1, kElements)->Wait().ok());  // its round has failed, too
  // All that was queued before has left.
  ExchangeWell(1000);
  const uint64_t sent = job_->worker(0).counters().van.payload_bytes_sent - before;
  EXPECT_LT(sent, kBytes / 2);
  ExchangeWell(kElements);
}

TEST_F(RevokedTest, TheOutputOfAFailedExchangeIsLeftAlone) {
  ExchangeWell(kElements);
  proxy_->Admit(GatedProxy::kAll, kBytes / 3);
  const auto one = Exchange(0, kElements), other = Exchange(1, kElements);
  const Status status = one->Wait();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
  EXPECT_NE(other->Wait().code(), StatusCode::kInternal);
  std::fill(one->output.begin(), one->output.end(), -2.0f);
  proxy_->Admit(GatedProxy::kAll, GatedProxy::kAll);
  ExchangeWell(1000);  // behind all replies
  EXPECT_EQ(std::count(one->output.begin(), one->output.end(), -2.0f),
            static_cast<int64_t>(kElements));
}

}  // namespace
}  // namespace byteps

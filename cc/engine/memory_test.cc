// Servers give memory back that no exchange needs any more.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "cc/engine/testing/test_job.h"

namespace byteps {
namespace {

constexpr size_t kElements = 300000;

// As initial values, which are broadcast once. The workers say so some seconds later.
TEST(MemoryTest, WhatIsUsedOnceIsNotKept) {
  Job job(2, 1);
  const auto exchange = [&](float value) {
    std::shared_ptr<Pending> weights[2];
    for (int rank = 0; rank < 2; ++rank) {
      weights[rank] =
          std::make_shared<Pending>(std::vector<float>(kElements, rank == 0 ? value : 0));
      job.worker(rank).Enqueue(Request("weights", weights[rank], ExchangeKind::kBroadcast));
    }
    for (const auto& each : weights) {
      ASSERT_TRUE(each->Wait().ok());
      EXPECT_EQ(each->output, std::vector<float>(kElements, value));
    }
  };
  exchange(1);
  EXPECT_GE(job.server(0).counters().accumulator_bytes, kElements * sizeof(float));
  const auto deadline = std::chrono::steady_clock::now() + kTestTimeout;
  while (job.server(0).counters().accumulator_bytes > 0) {
    ASSERT_LT(std::chrono::steady_clock::now(), deadline);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  exchange(2);
}

}  // namespace
}  // namespace byteps

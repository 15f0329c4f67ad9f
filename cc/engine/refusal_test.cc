// Rounds that one worker gives up before it knows where they are exchanged: the others hear of it.
#include <gtest/gtest.h>

#include <string>

#include "cc/engine/testing/test_job.h"

namespace byteps {
namespace {

constexpr size_t kElements = 1000;

EngineOptions Options() {
  EngineOptions options;
  options.flow.part_bytes = 1024;  // of 256 floats: four parts, on two servers
  return options;
}

// All get an error that says this, and then the sum of a next round. Who comes to the first one
// after worker 0 has begun the next learns that, perhaps, and no reason.
void ExpectAllAreTold(Worker& worker, int rank, const std::string& name,
                      const std::string& expected) {
  if (rank > 0) {
    const Status status = Send(worker, name, Values(rank, kElements))->Wait();
    EXPECT_FALSE(status.ok());
    EXPECT_NE(status.message().find(expected), std::string::npos) << status.ToString();
  }
  EXPECT_TRUE(Send(worker, name + "/go on", {1})->Wait().ok());
  const auto next = Send(worker, name, Values(rank, kElements));
  const Status status = next->Wait();
  ASSERT_TRUE(status.ok()) << status.ToString();
  ExpectSum(next->output, 3, kElements);
}

TEST(RefusalTest, TheFirstRoundOfANameIsGivenUp) {
  Job job(3, 2, Options());
  job.OnEachWorker([&](Worker& worker, int rank) {
    for (int i = 0; i < 20; ++i) {
      const std::string name = "t" + std::to_string(i);
      if (rank == 0) worker.GiveUpRounds({name}, "no such operation");
      ExpectAllAreTold(worker, rank, name, "worker 0 has given it up: no such operation");
    }
  });
}

TEST(RefusalTest, WhatTheEngineItselfRefusesEndsForTheOthers) {
  Job job(3, 2, Options());
  job.OnEachWorker([&](Worker& worker, int rank) {
    if (rank == 0) {
      const auto pending = std::make_shared<Pending>(Values(rank, kElements));
      ExchangeRequest request = Request("t", pending, ExchangeKind::kBroadcast);
      request.tensor.root_rank = 7;
      worker.Enqueue(std::move(request));
      EXPECT_EQ(pending->Wait().code(), StatusCode::kInvalidArgument);
    }
    ExpectAllAreTold(worker, rank, "t", "worker 0 has given it up: it refused the call: ");
  });
}

// The round before is in flight, until the other worker sends it.
TEST(RefusalTest, TheRoundAfterTheOneInFlightIsGivenUp) {
  Job job(2, 2, Options());
  const auto first = Send(job.worker(0), "t", Values(0, kElements));
  job.worker(0).GiveUpRounds({"t"}, "no such operation");
  EXPECT_EQ(first->calls(), 0);
  const auto same = Send(job.worker(1), "t", Values(1, kElements));
  EXPECT_TRUE(first->Wait().ok());
  EXPECT_TRUE(same->Wait().ok());
  ExpectSum(first->output, 2, kElements);
  const Status status = Send(job.worker(1), "t", Values(1, kElements))->Wait();
  EXPECT_NE(status.message().find("no such operation"), std::string::npos) << status.ToString();
}

}  // namespace
}  // namespace byteps

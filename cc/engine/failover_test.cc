// Servers that are lost while others remain (protocol rule 15): they die at chosen and at random
// bytes of pushes and replies, and every worker has every sum, the same on all.
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cc/base/clock.h"
#include "cc/engine/testing/killable_job.h"

namespace byteps {
namespace {

constexpr size_t kPartFloats = 1024;
constexpr size_t kParts = 8;

// The test of rule 15. Worker 0 has got so many of the replies; nobody else has got any.
class OneWorkerHasIt : public ::testing::TestWithParam<int> {};

TEST_P(OneWorkerHasIt, AllGetTheSameSum) {
  EngineOptions options;
  options.flow.part_bytes = kPartFloats * sizeof(float);
  KillableJob job(3, 2, options);
  ExpectAllTheSame(SendOnAll(job, kParts * kPartFloats));
  const uint64_t reply_bytes = kFrameHeaderBytes + kPartFloats * sizeof(float);
  const uint64_t received_before = job.worker(0).counters().received_bytes;
  const uint64_t rounds_before = job.server(1).counters().rounds_completed;
  // To worker 0 in the middle of a reply.
  job.gate(0, 0).Admit(kAll, GetParam() * reply_bytes + reply_bytes / 2);
  job.gate(0, 1).Admit(kAll, 0);
  job.gate(0, 2).Admit(kAll, 0);
  const auto sent = SendOnAll(job, kParts * kPartFloats);
  const uint64_t from_others = kParts / 2 * kPartFloats * sizeof(float);
  const uint64_t from_it = GetParam() * kPartFloats * sizeof(float);
  const int64_t deadline_ns = MonotonicNanos() + SecondsToNanos(20);
  for (int32_t rank = 0; rank < 3; ++rank) {
    while (MonotonicNanos() < deadline_ns) {
      const uint64_t received = job.worker(rank).counters().received_bytes - received_before;
      const bool is_shut = job.gate(0, rank).is_shut() || (rank == 0 && from_it == from_others);
      if (received == from_others + (rank == 0 ? from_it : 0) && is_shut) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  ASSERT_LT(MonotonicNanos(), deadline_ns) << "the gates are not where the test wants them";
  job.Kill(0);
  ExpectAllTheSame(sent);
  // What worker 0 had is not summed again.
  EXPECT_EQ(job.server(1).counters().rounds_completed - rounds_before, kParts - GetParam());
  for (int round = 0; round < 3; ++round) ExpectAllTheSame(SendOnAll(job, kParts * kPartFloats));
}

INSTANTIATE_TEST_SUITE_P(Parts, OneWorkerHasIt,
                         ::testing::Range(0, static_cast<int>(kParts / 2) + 1));

class RandomDeathsTest : public ::testing::TestWithParam<KillableShape> {};

// All servers but the last die, one after another or at once, at random bytes.
TEST_P(RandomDeathsTest, SumsAreExact) {
  const KillableShape shape = GetParam();
  Draw draw;
  const int jobs = Asked("BYTEPS_TEST_DEATHS").value_or(5);
  constexpr int kRounds = 12;
  for (int i = 0; i < jobs; ++i) {
    KillableJob job(shape);
    std::atomic<bool> over{false};
    std::vector<std::thread> killers;
    for (int32_t doomed = 0; doomed + 1 < shape.servers; ++doomed) {
      GatedProxy& gate = job.gate(doomed, static_cast<int32_t>(draw(shape.workers - 1)));
      const bool in_push = draw(1) == 0;
      const uint64_t bytes = draw(1500 * 1000);
      gate.Admit(in_push ? bytes : kAll, in_push ? kAll : bytes);
      killers.emplace_back([&over, &gate, &job, doomed] {
        while (!gate.is_shut() && !over)
          std::this_thread::sleep_for(std::chrono::microseconds(200));
        job.Kill(doomed);
      });
    }
    job.OnEachWorker([&](Worker& worker, int rank) {
      for (int round = 0; round < kRounds && !::testing::Test::HasFatalFailure(); ++round)
        ExchangeRound(worker, rank, shape.workers, round);
      EXPECT_EQ(worker.counters().unanswered_bytes, 0u) << "it would send less from now on";
    });
    over = true;
    for (std::thread& killer : killers) killer.join();
    ASSERT_FALSE(HasFatalFailure()) << "in job " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, RandomDeathsTest,
                         ::testing::Values(KillableShape{2, 2, 1, false},
                                           KillableShape{3, 2, 2, false},
                                           KillableShape{2, 3, 1, true},
                                           KillableShape{3, 3, 1, false}),
                         [](const auto& info) { return NameOf(info.param); });

// Ends with an error within two seconds, as does what comes later.
void ExpectLost(KillableJob& job, const std::vector<std::shared_ptr<Pending>>& sent) {
  const int64_t begin_ns = MonotonicNanos();
  for (const auto& pending : sent) {
    const Status status = pending->Wait();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
  }
  EXPECT_LT((MonotonicNanos() - begin_ns) * 1e-9, 2);
  EXPECT_EQ(Send(job.worker(0), "later", {1})->Wait().code(), StatusCode::kUnavailable);
}

// Worker 0 sends, and waits for the others.
std::vector<std::shared_ptr<Pending>> SendOnOne(KillableJob& job) {
  return {Send(job.worker(0), "t", OrderMatters(0, 100))};
}

TEST(FailoverTest, TheLastServersDeathIsAnError) {
  KillableJob job(2, 2, {});
  ExpectAllTheSame(SendOnAll(job, 100));
  job.Kill(1);
  ExpectAllTheSame(SendOnAll(job, 100));
  const auto sent = SendOnOne(job);
  job.Kill(0);
  ExpectLost(job, sent);
}

TEST(FailoverTest, AllServersAtOnceAreAnError) {
  KillableJob job(2, 3, {});
  const auto sent = SendOnOne(job);
  std::thread other([&] { job.Kill(1); });
  job.Kill(0);
  job.Kill(2);
  other.join();
  ExpectLost(job, sent);
}

TEST(FailoverTest, WithoutItAnyServersDeathIsAnError) {
  EngineOptions options;
  options.server_failover = false;
  KillableJob job(2, 2, options);
  ExpectAllTheSame(SendOnAll(job, 100));
  const auto sent = SendOnOne(job);
  job.Kill(1);
  ExpectLost(job, sent);
}

TEST(FailoverTest, WhatOneWorkerHasGivenUpIsAnErrorOnAll) {
  EngineOptions options;
  options.timeouts.operation_timeout = 1;
  KillableJob job(2, 2, options);
  ExpectAllTheSame(SendOnAll(job, 100));
  const auto sent = SendOnOne(job);
  EXPECT_EQ(sent[0]->Wait().code(), StatusCode::kDeadlineExceeded);
  job.Kill(0);  // has the only part
  const Status status = Send(job.worker(1), "t", OrderMatters(1, 100))->Wait();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
  EXPECT_NE(status.message().find("worker 0 has given it up"), std::string::npos)
      << status.ToString();
  ExpectAllTheSame(SendOnAll(job, 100));
}

std::shared_ptr<Pending> SendSplit(Worker& worker, int rank) {
  const auto pending = std::make_shared<Pending>(Values(rank, 200));
  ExchangeRequest request = Request("split", pending, ExchangeKind::kAllToAll);
  request.splits = {100, 100};
  worker.Enqueue(std::move(request));
  return pending;
}

// Worker 0 has got its rows, worker 1 has not, and nobody else has them.
TEST(FailoverTest, RowsOfAnAlltoallThatAreLostWithAServerAreALoss) {
  KillableJob job(2, 2, {});
  for (const auto& sent : {SendSplit(job.worker(0), 0), SendSplit(job.worker(1), 1)})
    ASSERT_TRUE(sent->Wait().ok());
  const int32_t owner = job.server(0).counters().rounds_completed > 0 ? 0 : 1;
  job.gate(owner, 1).Admit(kAll, 0);
  const auto first = SendSplit(job.worker(0), 0);
  const auto second = SendSplit(job.worker(1), 1);
  ASSERT_TRUE(first->Wait().ok());
  job.Kill(owner);
  const Status lost = second->Wait();
  EXPECT_EQ(lost.code(), StatusCode::kUnavailable) << lost.ToString();
  EXPECT_TRUE(job.worker(1).failure().ok()) << "its program may go on";
  for (const auto& sent : {SendSplit(job.worker(0), 0), SendSplit(job.worker(1), 1)})
    EXPECT_TRUE(sent->Wait().ok());
}

// It goes back to a commit, say, and the others have to as well.
TEST(FailoverTest, AWorkerThatCannotGoOnIsALossForTheOthers) {
  KillableJob job(2, 1, {});
  ExpectAllTheSame(SendOnAll(job, 100));
  const auto sent = SendOnOne(job);
  job.worker(1).Stop("its rows are lost");
  ExpectLost(job, sent);
  const Status failure = job.worker(0).failure();
  EXPECT_NE(failure.message().find("cannot go on: its rows are lost"), std::string::npos)
      << failure.ToString();
  EXPECT_EQ(job.worker(0).lost_peer()->rank, 1);
}

TEST(FailoverTest, HistoriesOfBackupWorkersAreNotMadeUpFor) {
  KillableJob job(3, 2, {});
  std::vector<std::shared_ptr<Pending>> sent;
  for (int32_t rank = 0; rank < 3; ++rank) {
    auto pending = std::make_shared<Pending>(Values(rank, 100000));
    ExchangeRequest request = Request("backed", pending);
    request.tensor.average = true;
    request.tensor.backup_workers = 1;
    job.worker(rank).Enqueue(std::move(request));
    sent.push_back(pending);
  }
  for (const auto& pending : sent) ASSERT_TRUE(pending->Wait().ok());
  const auto waiting = SendOnOne(job);
  job.Kill(0);
  ExpectLost(job, waiting);
}

}  // namespace
}  // namespace byteps

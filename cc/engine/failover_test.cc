// Servers that are lost while others remain (protocol rule 15): they die at chosen and at random
// bytes of pushes and replies, and every worker has every sum, the same on all.
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cc/base/clock.h"
#include "cc/engine/gated_proxy.h"
#include "cc/engine/test_job.h"

namespace byteps {
namespace {

constexpr uint64_t kAll = GatedProxy::kAll;

// A job whose workers reach the servers through a proxy for each pair.
class MortalJob {
 public:
  MortalJob(int32_t workers, int32_t servers, EngineOptions options) {
    options.heartbeat_interval = 5;  // nothing that a test does not ask for
    options.read_peer_memory = false;
    coordinator_ = std::make_unique<Coordinator>(options);
    Check(coordinator_->Listen("127.0.0.1", 0));
    JobDescription job;
    job.job_id = "failover";
    job.options = options;
    job.coordinator_endpoint = coordinator_->endpoint();
    job.worker_hosts.assign(workers, "host");
    job.server_hosts.assign(servers, "host");
    for (int32_t rank = 0; rank < servers; ++rank) {
      servers_.push_back(std::make_unique<Server>(options));
      Check(servers_.back()->Listen("127.0.0.1", 0));
      job.server_endpoints.push_back(servers_.back()->endpoint());
    }
    Check(coordinator_->Start(job));
    for (int32_t rank = 0; rank < servers; ++rank) Check(servers_[rank]->Start(job, rank));
    gates_.resize(servers);
    for (int32_t rank = 0; rank < workers; ++rank) {
      JobDescription seen = job;
      for (int32_t server = 0; server < servers; ++server) {
        gates_[server].push_back(std::make_unique<GatedProxy>(job.server_endpoints[server]));
        seen.server_endpoints[server] = gates_[server].back()->endpoint();
      }
      workers_.push_back(std::make_unique<Worker>(seen, rank));
      Check(workers_.back()->Start());
    }
  }

  // As kill -9: nothing that is on the way arrives.
  void Kill(int32_t server) {
    for (const auto& gate : gates_[server]) gate->Die();
    servers_[server]->Stop();
  }

  Worker& worker(int32_t rank) { return *workers_[rank]; }
  Server& server(int32_t rank) { return *servers_[rank]; }
  GatedProxy& gate(int32_t server, int32_t worker) { return *gates_[server][worker]; }
  int32_t num_workers() const { return static_cast<int32_t>(workers_.size()); }

  // On a thread for each worker.
  template <typename Body>
  void OnEachWorker(Body body) {
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < num_workers(); ++rank)
      threads.emplace_back([&, rank] { body(*workers_[rank], rank); });
    for (std::thread& thread : threads) thread.join();
  }

 private:
  static void Check(const Status& status) { ASSERT_TRUE(status.ok()) << status.ToString(); }

  std::unique_ptr<Coordinator> coordinator_;
  std::vector<std::unique_ptr<Server>> servers_;
  std::vector<std::vector<std::unique_ptr<GatedProxy>>> gates_;
  std::vector<std::unique_ptr<Worker>> workers_;
};

// The sum of three of these depends on their order: it is 0, 1 or something else.
std::vector<float> OrderMatters(int rank, size_t count) {
  const float value = rank == 0 ? 1e8f : rank == 1 ? -1e8f : 1.0f;
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i) values[i] = value + static_cast<float>(rank == 2 ? i % 7 : 0);
  return values;
}

// One round of tensor "t" on all workers, and what they got.
std::vector<std::shared_ptr<Pending>> SendOnAll(MortalJob& job, size_t count) {
  std::vector<std::shared_ptr<Pending>> sent;
  for (int32_t rank = 0; rank < job.num_workers(); ++rank)
    sent.push_back(Send(job.worker(rank), "t", OrderMatters(rank, count)));
  return sent;
}

void ExpectAllTheSame(const std::vector<std::shared_ptr<Pending>>& sent) {
  for (const auto& pending : sent) {
    const Status status = pending->Wait();
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  for (size_t rank = 1; rank < sent.size(); ++rank) {
    ASSERT_EQ(std::memcmp(sent[0]->output.data(), sent[rank]->output.data(),
                          sent[0]->output.size() * sizeof(float)),
              0)
        << "worker " << rank << " has another sum than worker 0";
  }
}

constexpr size_t kPartFloats = 1024;
constexpr size_t kParts = 8;

// The test of rule 15. Worker 0 has got so many of the replies; nobody else has got any.
class OneWorkerHasIt : public ::testing::TestWithParam<int> {};

TEST_P(OneWorkerHasIt, AllGetTheSameSum) {
  EngineOptions options;
  options.part_bytes = kPartFloats * sizeof(float);
  MortalJob job(3, 2, options);
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

// Drawn, printed, and taken from the environment to replay it.
uint64_t Seed() {
  const char* const given = std::getenv("BYTEPS_TEST_SEED");
  const uint64_t seed = given != nullptr ? std::stoull(given) : std::random_device()();
  std::cout << "BYTEPS_TEST_SEED=" << seed << std::endl;
  return seed;
}

// Sums, a broadcast, a gather and a tensor that is new, exactly.
void ExchangeRound(Worker& worker, int rank, int workers, int round) {
  const std::vector<size_t> counts = {0, 1, 5000, 60000};
  std::vector<std::shared_ptr<Pending>> sums;
  for (size_t i = 0; i < counts.size(); ++i)
    sums.push_back(Send(worker, "sum" + std::to_string(i), Values(rank + round % 3, counts[i])));
  const auto fresh = Send(worker, "round" + std::to_string(round), Values(rank, 100));
  auto weights =
      std::make_shared<Pending>(rank == 1 ? Values(round % 7, 20000) : std::vector<float>(20000));
  ExchangeRequest broadcast = Request("weights", weights, ExchangeKind::kBroadcast);
  broadcast.tensor.root_rank = 1;
  worker.Enqueue(std::move(broadcast));
  const auto rows = Send(worker, "rows", Values(rank, 3000 + rank), ExchangeKind::kGather);
  for (size_t i = 0; i < counts.size(); ++i) {
    const Status status = sums[i]->Wait();
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (size_t k = 0; k < counts[i]; ++k) {
      float expected = 0;
      for (int from = 0; from < workers; ++from) expected += Value(from + round % 3, k);
      ASSERT_EQ(sums[i]->output[k], expected) << "round " << round << ", element " << k;
    }
  }
  ASSERT_TRUE(fresh->Wait().ok());
  ExpectSum(fresh->output, workers, 100);
  ASSERT_TRUE(weights->Wait().ok());
  ASSERT_EQ(weights->output, Values(round % 7, 20000));
  const Status status = rows->Wait();
  ASSERT_TRUE(status.ok()) << status.ToString();
  std::vector<float> expected;
  for (int from = 0; from < workers; ++from) {
    const std::vector<float> values = Values(from, 3000 + from);
    expected.insert(expected.end(), values.begin(), values.end());
  }
  rows->output.resize(expected.size());
  ASSERT_EQ(rows->output, expected);
}

struct Shape {
  int workers;
  int servers;
  int connections;
  bool in_rank_order;
};

class RandomDeathsTest : public ::testing::TestWithParam<Shape> {};

// All servers but the last die, one after another or at once, at random bytes.
TEST_P(RandomDeathsTest, SumsAreExact) {
  const Shape shape = GetParam();
  std::mt19937_64 random(Seed());
  const auto draw = [&](uint64_t most) {
    return std::uniform_int_distribution<uint64_t>(0, most)(random);
  };
  const char* const asked = std::getenv("BYTEPS_TEST_DEATHS");
  const int jobs = asked != nullptr ? std::atoi(asked) : 5;
  constexpr int kRounds = 12;
  for (int i = 0; i < jobs; ++i) {
    EngineOptions options;
    options.part_bytes = 16 * 1024;
    options.connections_per_server = shape.connections;
    options.deterministic = shape.in_rank_order;
    MortalJob job(shape.workers, shape.servers, options);
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
                         ::testing::Values(Shape{2, 2, 1, false}, Shape{3, 2, 2, false},
                                           Shape{2, 3, 1, true}, Shape{3, 3, 1, false}),
                         [](const auto& info) {
                           return std::to_string(info.param.workers) + "Workers" +
                                  std::to_string(info.param.servers) + "Servers" +
                                  std::to_string(info.param.connections) + "Connections" +
                                  (info.param.in_rank_order ? "InRankOrder" : "");
                         });

// Ends with an error within two seconds, as does what comes later.
void ExpectLost(MortalJob& job, const std::vector<std::shared_ptr<Pending>>& sent) {
  const int64_t begin_ns = MonotonicNanos();
  for (const auto& pending : sent) {
    const Status status = pending->Wait();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
  }
  EXPECT_LT((MonotonicNanos() - begin_ns) * 1e-9, 2);
  EXPECT_EQ(Send(job.worker(0), "later", {1})->Wait().code(), StatusCode::kUnavailable);
}

// Worker 0 sends, and waits for the others.
std::vector<std::shared_ptr<Pending>> SendOnOne(MortalJob& job) {
  return {Send(job.worker(0), "t", OrderMatters(0, 100))};
}

TEST(FailoverTest, TheLastServersDeathIsAnError) {
  MortalJob job(2, 2, {});
  ExpectAllTheSame(SendOnAll(job, 100));
  job.Kill(1);
  ExpectAllTheSame(SendOnAll(job, 100));
  const auto sent = SendOnOne(job);
  job.Kill(0);
  ExpectLost(job, sent);
}

TEST(FailoverTest, AllServersAtOnceAreAnError) {
  MortalJob job(2, 3, {});
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
  MortalJob job(2, 2, options);
  ExpectAllTheSame(SendOnAll(job, 100));
  const auto sent = SendOnOne(job);
  job.Kill(1);
  ExpectLost(job, sent);
}

TEST(FailoverTest, WhatOneWorkerHasGivenUpIsAnErrorOnAll) {
  EngineOptions options;
  options.operation_timeout = 1;
  MortalJob job(2, 2, options);
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

TEST(FailoverTest, HistoriesOfBackupWorkersAreNotMadeUpFor) {
  MortalJob job(3, 2, {});
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

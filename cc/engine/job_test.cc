// Whole jobs over real sockets: a coordinator, servers and workers, all in this process so that the
// sanitizers see every side of a race. tests/engine does the same with real processes.
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cc/engine/testing/test_job.h"

namespace byteps {
namespace {

class JobSizeTest : public ::testing::TestWithParam<std::pair<int, int>> {};

TEST_P(JobSizeTest, SumsAtPartBoundariesOverSeveralRounds) {
  EngineOptions options;
  options.flow.part_bytes = 1024;  // 256 floats
  const auto [workers, servers] = GetParam();
  Job job(workers, servers, options);
  job.OnEachWorker([&, workers = workers](Worker& worker, int rank) {
    for (int round = 0; round < 3; ++round) {
      for (const size_t count : {0, 1, 255, 256, 257, 1000}) {
        const auto pending = Send(worker, "t" + std::to_string(count), Values(rank, count));
        const Status status = pending->Wait();
        ASSERT_TRUE(status.ok()) << status.ToString();
        ExpectSum(pending->output, workers, count);
      }
    }
  });
}

INSTANTIATE_TEST_SUITE_P(WorkersAndServers, JobSizeTest,
                         ::testing::Values(std::pair(1, 1), std::pair(2, 1), std::pair(2, 3),
                                           std::pair(3, 2)),
                         [](const auto& info) {
                           return std::to_string(info.param.first) + "Workers" +
                                  std::to_string(info.param.second) + "Servers";
                         });

// Protocol rule 9: credit that waited for the round to complete would deadlock here.
TEST(JobTest, OppositeOrderWithCreditOfOnePartCompletes) {
  EngineOptions options;
  options.flow.part_bytes = 4096;
  options.flow.credit_bytes = 4096;
  Job job(2, 2, options);
  job.OnEachWorker([](Worker& worker, int rank) {
    constexpr int kTensors = 200;
    std::vector<std::shared_ptr<Pending>> pending(kTensors);
    for (int i = 0; i < kTensors; ++i) {
      const int tensor = rank == 0 ? i : kTensors - 1 - i;
      pending[tensor] = Send(worker, "t" + std::to_string(tensor), Values(rank, 1000 + tensor));
    }
    for (int tensor = 0; tensor < kTensors; ++tensor) {
      ASSERT_TRUE(pending[tensor]->Wait().ok());
      ExpectSum(pending[tensor]->output, 2, 1000 + tensor);
    }
  });
}

TEST(JobTest, BroadcastCopiesTheRootsValue) {
  Job job(3, 2);
  job.OnEachWorker([](Worker& worker, int rank) {
    auto pending = std::make_shared<Pending>(rank == 1 ? Values(7, 3000)
                                                       : std::vector<float>(3000, std::nanf("")));
    ExchangeRequest request = Request("weights", pending, ExchangeKind::kBroadcast);
    request.tensor.root_rank = 1;
    worker.Enqueue(std::move(request));
    ASSERT_TRUE(pending->Wait().ok());
    EXPECT_EQ(pending->output, Values(7, 3000));
  });
}

// An exchange kind of its own (protocol rule 5).
TEST(JobTest, GatherConcatenatesUnequalLengthsInRankOrder) {
  Job job(3, 1);
  job.OnEachWorker([](Worker& worker, int rank) {
    for (int round = 0; round < 3; ++round) {
      const size_t count = rank * 10 + round;  // none on rank 0 in round 0
      const auto pending = Send(worker, "rows", Values(rank, count), ExchangeKind::kGather);
      ASSERT_TRUE(pending->Wait().ok());
      std::vector<float> expected;
      for (int from = 0; from < 3; ++from) {
        const std::vector<float> values = Values(from, from * 10 + round);
        expected.insert(expected.end(), values.begin(), values.end());
      }
      pending->output.resize(expected.size());
      EXPECT_EQ(pending->output, expected);
      EXPECT_EQ(pending->rows, (std::vector<int64_t>{round, 10 + round, 20 + round}));
    }
  });
}

TEST(JobTest, GatherCountsRowsWithoutElements) {
  Job job(2, 1);
  job.OnEachWorker([](Worker& worker, int rank) {
    auto pending = std::make_shared<Pending>(std::vector<float>());
    ExchangeRequest request = Request("rows", pending, ExchangeKind::kGather);
    request.tensor.shape = {-1, 0};
    request.gather_rows = 3 + rank;
    request.allocate_output = [raw = pending.get()](const std::vector<int64_t>& rows) -> void* {
      raw->rows = rows;
      return raw;
    };
    worker.Enqueue(std::move(request));
    ASSERT_TRUE(pending->Wait().ok());
    EXPECT_EQ(pending->rows, (std::vector<int64_t>{3, 4}));
  });
}

// How many of its rows worker `from` has for worker `to`.
int64_t SplitOf(int from, int to, int round) { return (from * 7 + to * 3 + round) % 5 * 4000; }

ExchangeRequest SplitRequest(const std::shared_ptr<Pending>& pending, std::vector<int64_t> splits) {
  ExchangeRequest request = Request("split", pending, ExchangeKind::kAllToAll);
  request.splits = std::move(splits);
  return request;
}

TEST(JobTest, AllToAllGivesEachWorkerWhatTheOthersHaveForIt) {
  constexpr int kWorkers = 3;
  Job job(kWorkers, 2);
  job.OnEachWorker([](Worker& worker, int rank) {
    for (int round = 0; round < 3; ++round) {
      std::vector<int64_t> splits, received;
      std::vector<float> input, expected;
      for (int other = 0; other < kWorkers; ++other) {
        splits.push_back(SplitOf(rank, other, round));
        received.push_back(SplitOf(other, rank, round));
        const auto value = [&](int from, int to) { return 100.0F * from + 10 * to + round; };
        input.insert(input.end(), splits.back(), value(rank, other));
        expected.insert(expected.end(), received.back(), value(other, rank));
      }
      const auto pending = std::make_shared<Pending>(std::move(input));
      worker.Enqueue(SplitRequest(pending, splits));
      ASSERT_TRUE(pending->Wait().ok());
      pending->output.resize(expected.size());
      EXPECT_EQ(pending->output, expected);
      EXPECT_EQ(pending->rows, received);
    }
  });
}

// Who gives wrong splits learns why, the others that it has refused, and the name works again.
TEST(JobTest, WrongSplitsAreAnErrorForAll) {
  Job job(2, 1);
  const std::vector<std::pair<std::vector<int64_t>, std::string>> wrong = {
      {{3, -1}, "the split for worker 1 is -1"},
      {{2, 2}, "more than the tensor's 3 rows"},
      {{1, 1}, "add up to 2 rows, but the tensor has 3"},
      {{1, 1, 1}, "got 3 splits for 2 workers"},
      {{}, "got 0 splits for 2 workers"},
  };
  job.OnEachWorker([&](Worker& worker, int rank) {
    for (const auto& [splits, reason] : wrong) {
      const auto pending = std::make_shared<Pending>(Values(rank, 3));
      worker.Enqueue(SplitRequest(pending, rank == 0 ? splits : std::vector<int64_t>{1, 2}));
      const Status status = pending->Wait();
      EXPECT_FALSE(status.ok());
      EXPECT_NE(status.message().find(reason), std::string::npos) << status.message();
      // The next round would end this one, too, but without the reason (protocol rule 31).
      ASSERT_TRUE(Send(worker, "barrier", {1})->Wait().ok());
    }
    const auto pending = std::make_shared<Pending>(Values(rank, 3));
    worker.Enqueue(SplitRequest(pending, {1, 2}));
    EXPECT_TRUE(pending->Wait().ok());
  });
}

TEST(JobTest, DisagreementIsAnErrorForAllAndTheNameWorksAgain) {
  EngineOptions options;
  options.flow.part_bytes = 64;  // several parts, so that some of the failed round stay half done
  Job job(2, 2, options);
  job.OnEachWorker([](Worker& worker, int rank) {
    for (int repeat = 0; repeat < 3; ++repeat) {
      const Status status = Send(worker, "t", Values(rank, 100 + rank))->Wait();
      EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
      EXPECT_NE(status.message().find("worker 0 sent float32[100] sum"), std::string::npos)
          << status.message();
      EXPECT_NE(status.message().find("worker 1 sent float32[101] sum"), std::string::npos);
      const auto again = Send(worker, "t", Values(rank, 100));
      const Status agreed = again->Wait();
      ASSERT_TRUE(agreed.ok()) << agreed.ToString();
      ExpectSum(again->output, 2, 100);
    }
  });
}

// Protocol rule 11: the same name with two shapes in turn.
TEST(JobTest, AllWorkersMayChangeTheShapeTogether) {
  EngineOptions options;
  options.flow.part_bytes = 128;
  Job job(2, 3, options);
  job.OnEachWorker([](Worker& worker, int rank) {
    for (int step = 0; step < 20; ++step) {
      const size_t count = step % 2 == 0 ? 100 : 33;
      const auto pending = Send(worker, "t", Values(rank, count));
      ASSERT_TRUE(pending->Wait().ok());
      ExpectSum(pending->output, 2, count);
    }
  });
}

TEST(JobTest, ALeaverIsNamedToThoseWhoStillWait) {
  Job job(2, 1);
  job.worker(1).Stop();
  const Status status = Send(job.worker(0), "t", Values(0, 10))->Wait();
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("worker 1"), std::string::npos) << status.ToString();
  EXPECT_NE(status.message().find("\"t\""), std::string::npos) << status.ToString();
}

TEST(JobTest, StopEndsWhatIsPendingAndWhatComesLater) {
  Job job(2, 1);
  const auto pending = Send(job.worker(0), "t", Values(0, 10));
  job.worker(0).Stop();
  EXPECT_EQ(pending->Wait().code(), StatusCode::kCancelled);
  EXPECT_EQ(pending->calls(), 1);
  EXPECT_EQ(Send(job.worker(0), "u", Values(0, 10))->Wait().code(), StatusCode::kCancelled);
}

TEST(JobTest, AnExchangeThatOneGivesUpEndsForTheOthers) {
  EngineOptions options;
  options.timeouts.operation_timeout = 1;
  options.flow.part_bytes = 64;
  Job job(2, 2, options);
  EXPECT_EQ(Send(job.worker(0), "t", Values(0, 100))->Wait().code(), StatusCode::kDeadlineExceeded);
  const Status status = Send(job.worker(1), "t", Values(1, 100))->Wait();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_NE(status.message().find("worker 0 has given it up"), std::string::npos)
      << status.ToString();
  job.OnEachWorker([](Worker& worker, int rank) {
    const auto again = Send(worker, "t", Values(rank, 100));
    const Status agreed = again->Wait();
    ASSERT_TRUE(agreed.ok()) << agreed.ToString();
    ExpectSum(again->output, 2, 100);
  });
}

TEST(JobTest, ALostServerEndsEverythingWithItsName) {
  Job job(2, 2);
  const auto pending = Send(job.worker(0), "t", Values(0, 10));
  job.server(0).Stop();
  job.server(1).Stop();
  const Status status = pending->Wait();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
  EXPECT_NE(status.message().find("server "), std::string::npos) << status.message();
  EXPECT_EQ(Send(job.worker(0), "u", Values(0, 1))->Wait().code(), StatusCode::kUnavailable);
}

TEST(JobTest, ALostCoordinatorEndsEverythingWithItsName) {
  Job job(2, 1);
  const auto pending = Send(job.worker(0), "t", Values(0, 10));
  job.coordinator().Stop();
  const Status status = pending->Wait();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
  EXPECT_NE(status.message().find("scheduler"), std::string::npos) << status.message();
}

TEST(JobTest, ServersAndCoordinatorSeeTheEnd) {
  Job job(2, 2);
  EXPECT_FALSE(job.server(0).Wait(0));
  job.worker(0).Stop();
  EXPECT_FALSE(job.coordinator().Wait(0));
  job.worker(1).Stop();
  EXPECT_TRUE(job.server(0).Wait(10));
  EXPECT_TRUE(job.server(1).Wait(10));
  EXPECT_EQ(job.server(0).failure(), "");
  job.server(0).Stop();
  job.server(1).Stop();
  EXPECT_TRUE(job.coordinator().Wait(10));
  EXPECT_EQ(job.coordinator().failure(), "");
}

TEST(JobTest, BytesAreCountedOncePerWorker) {
  Job job(2, 1);
  job.OnEachWorker([](Worker& worker, int rank) {
    for (int step = 0; step < 5; ++step) {
      ASSERT_TRUE(Send(worker, "gradient", Values(rank, 1000))->Wait().ok());
    }
  });
  EXPECT_EQ(job.server(0).counters().pushed_bytes, 2u * 5 * 4000);
  EXPECT_EQ(job.worker(0).counters().pushed_bytes, 5u * 4000);
  EXPECT_EQ(job.worker(0).counters().received_bytes, 5u * 4000);
}

TEST(JobTest, AnnouncedTensorsAreExchangedLikeOthers) {
  Job job(2, 2);
  job.OnEachWorker([](Worker& worker, int rank) {
    std::vector<TensorDescription> tensors(50);
    for (int i = 0; i < 50; ++i) {
      tensors[i].name = "t" + std::to_string(i);
      tensors[i].shape = {100};
    }
    worker.Declare(tensors);
    std::vector<std::shared_ptr<Pending>> pending;
    for (int i = 0; i < 50; ++i)
      pending.push_back(Send(worker, tensors[i].name, Values(rank, 100)));
    for (const auto& one : pending) {
      ASSERT_TRUE(one->Wait().ok());
      ExpectSum(one->output, 2, 100);
    }
  });
}

// Rounds are in flight everywhere, and each worker is at another place, when the links are known.
TEST(JobTest, TensorsAreCutAgainWhileTheyAreExchanged) {
  EngineOptions options;
  options.flow.link_bytes_per_second = 5 * 1000 * 1000;  // parts of 32 KB, not of 128
  const std::vector<size_t> counts = {0, 1, 8192, 8193, 300000, 77777};
  for (const int servers : {1, 3}) {
    Job job(3, servers, options, /*on_one_host=*/false);
    job.OnEachWorker([&](Worker& worker, int rank) {
      uint64_t parts_before = 0;
      for (int round = 0; round < 20; ++round) {
        parts_before = worker.counters().pushed_parts;
        std::this_thread::sleep_for(std::chrono::milliseconds(rank));
        std::vector<std::shared_ptr<Pending>> pending;
        for (size_t i = 0; i < counts.size(); ++i)
          pending.push_back(Send(worker, "t" + std::to_string(i), Values(rank, counts[i])));
        const auto other = Send(worker, "t", Values(rank, round % 2 == 0 ? 100000 : 50000));
        for (size_t i = 0; i < counts.size(); ++i) {
          const Status status = pending[i]->Wait();
          ASSERT_TRUE(status.ok()) << status.ToString();
          ExpectSum(pending[i]->output, 3, counts[i]);
        }
        ASSERT_TRUE(other->Wait().ok());
        ExpectSum(other->output, 3, other->input.size());
      }
      // In parts of 8,192 floats; "t" had 50,000.
      EXPECT_EQ(worker.counters().pushed_parts - parts_before, 1u + 1 + 1 + 2 + 37 + 10 + 7);
      EXPECT_EQ(worker.counters().credit_bytes, 256u * 1024);
    });
  }
}

TEST(JobTest, OneWorkerWithoutServersCopies) {
  JobDescription description;
  description.worker_hosts = {"host"};
  Worker worker(description, 0);
  ASSERT_TRUE(worker.Start().ok());
  const auto sum = Send(worker, "t", Values(0, 10));
  ASSERT_TRUE(sum->Wait().ok());
  EXPECT_EQ(sum->output, Values(0, 10));
  const auto gather = Send(worker, "g", Values(0, 4), ExchangeKind::kGather);
  ASSERT_TRUE(gather->Wait().ok());
  EXPECT_EQ(gather->rows, (std::vector<int64_t>{4}));
  worker.Stop();
  EXPECT_EQ(Send(worker, "t", Values(0, 10))->Wait().code(), StatusCode::kCancelled);
}

// Backup workers: nobody waits for the slow one until it is max_lag rounds behind, and all get the
// same results, whoever was in.
TEST(JobTest, ASlowWorkerGetsTheResultsOfTheOthers) {
  constexpr int kRounds = 60, kSlow = 2;
  EngineOptions options;
  options.flow.part_bytes = 4096;
  options.max_lag = 3;
  Job job(3, 2, options);
  std::vector<std::vector<float>> sums(3);
  std::vector<std::atomic<int>> done(3);
  std::atomic<int> largest_lag{0};
  job.OnEachWorker([&](Worker& worker, int rank) {
    sums[rank].assign(5000, 0);
    for (int round = 0; round < kRounds; ++round) {
      if (rank == kSlow) std::this_thread::sleep_for(std::chrono::milliseconds(2));
      const auto pending = std::make_shared<Pending>(Values(rank + round, 5000));
      ExchangeRequest request = Request("gradient", pending);
      request.tensor.average = true;
      request.tensor.backup_workers = 1;
      worker.Enqueue(std::move(request));
      const Status status = pending->Wait();
      ASSERT_TRUE(status.ok()) << status.ToString();
      for (size_t i = 0; i < sums[rank].size(); ++i) sums[rank][i] += pending->output[i];
      ++done[rank];
      largest_lag = std::max<int>(largest_lag, done[rank] - done[kSlow]);
    }
  });
  EXPECT_EQ(sums[0], sums[1]);
  EXPECT_EQ(sums[0], sums[kSlow]);
  EXPECT_GE(largest_lag, 2);
  EXPECT_LE(largest_lag, options.max_lag + 1);  // the slow one may not have noted its last yet
  uint64_t dropped = 0;
  for (int server = 0; server < 2; ++server)
    dropped += job.server(server).arrival_lags()[kSlow].dropped;
  EXPECT_GT(dropped, 0u);
}

TEST(JobTest, BackupWorkersAreRefusedInDeterministicJobs) {
  EngineOptions options;
  options.deterministic = true;
  Job job(2, 1, options);
  const auto pending = std::make_shared<Pending>(Values(0, 3));
  ExchangeRequest request = Request("gradient", pending);
  request.tensor.average = true;
  request.tensor.backup_workers = 1;
  job.worker(0).Enqueue(std::move(request));
  const Status status = pending->Wait();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("deterministic mode forbids"), std::string::npos);
}

}  // namespace
}  // namespace byteps

// The exchanges of workers with GPUs, and how they end.
#include "cc/staging/local_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "cc/codec/testing/expected_sum.h"
#include "cc/staging/testing/local_group_job.h"

namespace byteps {
namespace {

// Whether there are GPUs in it.
class LocalGroupTest : public LocalGroupJob, public ::testing::WithParamInterface<bool> {
 protected:
  LocalGroupTest() : LocalGroupJob(GetParam()) {}

  static constexpr int64_t kCompressed = 100000;

  // Sums of `rounds` gradients, exactly as a codec with nearest rounding makes them of the hosts'.
  void ExpectCompressedSums(const std::string& codec, int rounds) {
    TensorDescription tensor = Tensor("gradient", kCompressed);
    tensor.codec = CodecNamed(codec)->name();
    const auto value = [](int32_t rank, int64_t i, int round) {
      return static_cast<float>((rank + 1) * (i % 97) + round) - 40;
    };
    for (int round = 0; round < rounds; ++round) {
      std::map<std::string, std::vector<float>> of_hosts;
      for (int32_t rank = 0; rank < size(); ++rank) {
        std::vector<float>& sum = of_hosts[job_.worker_hosts[rank]];
        sum.resize(kCompressed);
        for (int64_t i = 0; i < kCompressed; ++i) sum[i] += value(rank, i, round);
      }
      std::vector<std::vector<float>> pushed;
      for (const auto& [host, sum] : of_hosts) pushed.push_back(sum);
      // Parts have whole blocks, and nearest rounding needs no seed.
      const std::vector<float> expected = ExpectedSum(tensor.codec, pushed, PartSeed());
      OnEachRank([&](Rank& mine, int32_t rank) {
        std::vector<float> values(kCompressed);
        for (int64_t i = 0; i < kCompressed; ++i) values[i] = value(rank, i, round);
        const auto sent = mine.Send(tensor, values);
        const Status status = sent->Wait();
        ASSERT_TRUE(status.ok()) << status.ToString();
        EXPECT_EQ(sent->output->Get(), expected);
      });
    }
  }

  static constexpr uint64_t kSums = 9;  // more than one launch decodes
  static constexpr uint64_t kSumElements = 20000;

  void StartJobOfSums() {
    EngineOptions options;
    options.flow.part_bytes = kSumElements * sizeof(float);
    StartJob({"a", "b"}, options);
  }
  // One of kSums tensors that are a part each.
  static std::shared_ptr<Sent> SendSum(Rank& rank, uint64_t number) {
    TensorDescription tensor = Tensor("sum " + std::to_string(number), kSumElements);
    tensor.codec = CodecNamed("int8")->name();
    return rank.Send(tensor, std::vector<float>(kSumElements, 1));
  }
  // By rank 0, whose device is busy once they have left.
  std::vector<std::shared_ptr<Sent>> SendSumsAndBeBusy() {
    std::vector<std::shared_ptr<Sent>> sent;
    for (uint64_t i = 0; i < kSums; ++i) sent.push_back(SendSum(ranks_[0], i));
    WaitUntil([&] { return server_->counters().pushes == kSums; });
    ranks_[0].cpu_device->BeBusy(true);
    return sent;
  }
  // Rank 1 sends what is missing of the sums from `first` on. Rank 0 has received all then.
  void CompleteSums(uint64_t first, std::vector<std::shared_ptr<Sent>>* sent) {
    for (uint64_t i = first; i < kSums; ++i) sent->push_back(SendSum(ranks_[1], i));
    const uint64_t bytes = Int8Codec(32, false).EncodedBytes(kSumElements);
    WaitUntil([&] { return ranks_[0].worker->counters().received_bytes == kSums * bytes; });
  }

  static void WaitUntil(const std::function<bool()>& is_so) {
    const auto deadline = std::chrono::steady_clock::now() + kTestTimeout;
    while (!is_so() && std::chrono::steady_clock::now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_TRUE(is_so());
  }

  // All kinds, with the values and counts that make parts of odd lengths.
  void ExpectAllKinds() {
    OnEachRank([&](Rank& mine, int32_t rank) {
      const float n = static_cast<float>(size());
      for (const size_t count : {0, 1, 1023, 1024, 1025, 5000}) {
        std::vector<float> values(count);
        for (size_t i = 0; i < count; ++i) values[i] = (rank + 1.0f) * (i % 13);
        const auto expect = [&](TensorDescription tensor, const char* what, float factor) {
          tensor.name = std::string(what) + std::to_string(count);
          for (int round = 0; round < 2; ++round) {
            const auto sent = mine.Send(tensor, values);
            const Status status = sent->Wait();
            ASSERT_TRUE(status.ok()) << status.ToString();
            std::vector<float> expected(count);
            for (size_t i = 0; i < count; ++i) expected[i] = factor * (i % 13);
            const std::vector<float> received = sent->output->Get();
            ASSERT_EQ(received.size(), expected.size());
            // NCCL multiplies by 1 / n where we divide by n.
            for (size_t i = 0; i < count; ++i)
              ASSERT_FLOAT_EQ(received[i], expected[i]) << tensor.name << " at " << i;
          }
        };
        const auto elements = static_cast<int64_t>(count);
        TensorDescription average = Tensor("", elements);
        average.average = true;
        expect(Tensor("", elements), "sum", n * (n + 1) / 2);
        expect(average, "average", (n + 1) / 2);
        expect(Tensor("", elements, ExchangeKind::kMin), "min", 1);
        expect(Tensor("", elements, ExchangeKind::kMax), "max", n);
        for (int32_t root = 0; root < size(); ++root) {
          TensorDescription broadcast = Tensor("", elements, ExchangeKind::kBroadcast);
          broadcast.root_rank = root;
          expect(broadcast, ("from" + std::to_string(root) + " ").c_str(), root + 1.0f);
        }
      }
    });
  }
};

INSTANTIATE_TEST_SUITE_P(With, LocalGroupTest, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Gpus" : "Arithmetic"; });

TEST_P(LocalGroupTest, OneHostExchangesWithoutServers) {
  StartJob({"a", "a", "a"});
  if (IsSkipped()) return;
  ExpectAllKinds();
  EXPECT_EQ(server_->counters().pushes, 0u);
}

TEST_P(LocalGroupTest, TwoOnOneHost) {
  StartJob({"a", "a"});
  if (!IsSkipped()) ExpectAllKinds();
}

TEST_P(LocalGroupTest, OneOnEachOfTwoHosts) {
  StartJob({"a", "b"});
  if (!IsSkipped()) ExpectAllKinds();
}

TEST_P(LocalGroupTest, WorkersThatShareAGpuAreOnTheirOwn) {
  StartJob({"a", "a"}, {}, /*gpus_share_hosts=*/false);
  if (IsSkipped()) return;
  ExpectAllKinds();
  EXPECT_GT(server_->counters().pushes, 0u);
}

TEST_P(LocalGroupTest, HostsOfThreeAndOne) {
  StartJob({"a", "b", "a", "a"});
  if (!IsSkipped()) ExpectAllKinds();
}

TEST_P(LocalGroupTest, HostsOfTwoAndTwo) {
  StartJob({"a", "a", "b", "b"});
  if (!IsSkipped()) ExpectAllKinds();
}

// One after the other, while parts are in flight.
TEST_P(LocalGroupTest, LosesTwoOfThreeServers) {
  others_.resize(2);
  StartJob({"a", "b", "a", "b"});
  if (IsSkipped()) return;
  std::atomic<bool> over{false};
  std::thread killer([&] {
    for (const std::unique_ptr<Server>& other : others_) {
      const uint64_t pushes = other->counters().pushes + 20;
      while (other->counters().pushes < pushes && !over)
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      EXPECT_FALSE(over);
      other->Stop();
    }
  });
  ExpectAllKinds();
  over = true;
  killer.join();
  EXPECT_EQ(coordinator_->failure(), "");
}

TEST_P(LocalGroupTest, EachHostSendsAGradientOnce) {
  StartJob({"a", "a", "b", "b"});
  if (IsSkipped()) return;
  constexpr int64_t kCount = 100000;
  OnEachRank([&](Rank& mine, int32_t rank) {
    const auto sent = mine.Send(Tensor("gradient", kCount), std::vector<float>(kCount, rank));
    const Status status = sent->Wait();
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(sent->output->Get(), std::vector<float>(kCount, 6));
  });
  EXPECT_EQ(server_->counters().pushed_bytes, 2u * kCount * sizeof(float));
  uint64_t pushed = 0;
  for (const Rank& rank : ranks_) {
    const WorkerCounters counters = rank.worker->counters();
    // The workers of a host take turns.
    EXPECT_NEAR(counters.pushed_bytes, kCount * sizeof(float) / 2.0, 4096);
    EXPECT_EQ(counters.received_bytes, counters.pushed_bytes);
    pushed += counters.pushed_bytes;
  }
  EXPECT_EQ(pushed, 2u * kCount * sizeof(float));
}

// Compressed after the host's reduce: all GPUs of a host get the decoded bits of the one that has
// received them.
TEST_P(LocalGroupTest, EachHostSendsACompressedGradientOnce) {
  StartJob({"a", "a", "b", "b"});
  if (IsSkipped()) return;
  ExpectCompressedSums("int8", 1);
  EXPECT_EQ(server_->counters().pushed_bytes, 2u * kCompressed * 34 / 32);
  for (const Rank& rank : ranks_) {
    if (rank.cpu_device == nullptr) continue;
    EXPECT_GT(rank.cpu_device->encoded_parts(), 0u);
    EXPECT_EQ(rank.cpu_device->decoded_parts(), rank.cpu_device->encoded_parts());
  }
}

TEST_P(LocalGroupTest, TheHostCompressesWhereDevicesCannot) {
  devices_encode_ = false;
  StartJob({"a", "a", "b", "b"});
  if (IsSkipped()) return;
  ExpectCompressedSums("int8", 1);
  EXPECT_EQ(server_->counters().pushed_bytes, 2u * kCompressed * 34 / 32);
}

// Up by the host's codec, with random numbers, and down by the device's.
TEST_P(LocalGroupTest, DevicesDecodeWhatTheHostHasEncoded) {
  StartJob({"a", "b"});
  if (IsSkipped()) return;
  OnEachRank([&](Rank& mine, int32_t rank) {
    TensorDescription tensor = Tensor("gradient", kCompressed);
    tensor.codec = CodecNamed("dithering")->name();
    const auto sent = mine.Send(tensor, std::vector<float>(kCompressed, rank + 1.0f));
    const Status status = sent->Wait();
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (const float value : sent->output->Get()) ASSERT_NEAR(value, 3, 0.02);
    if (mine.cpu_device == nullptr) return;
    EXPECT_EQ(mine.cpu_device->encoded_parts(), 0u);
    EXPECT_GT(mine.cpu_device->decoded_parts(), 0u);
  });
}

// The last one may come when the others have left.
TEST_P(LocalGroupTest, SumsOfSeveralTensorsAreDecodedTogether) {
  StartJobOfSums();
  if (IsSkipped() || ranks_[0].cpu_device == nullptr) return;
  std::vector<std::shared_ptr<Sent>> sent = SendSumsAndBeBusy();
  CompleteSums(0, &sent);
  ranks_[0].cpu_device->BeBusy(false);
  for (const std::shared_ptr<Sent>& each : sent) {
    Check(each->Wait());
    for (const float value : each->output->Get()) ASSERT_NEAR(value, 2, 0.02);
  }
  EXPECT_EQ(ranks_[0].cpu_device->decoded_parts(), kSums);
  EXPECT_LE(ranks_[0].cpu_device->decode_calls(), 3u);
}

// Its memory may be gone. What the device has been given before, ends.
TEST_P(LocalGroupTest, TheSumOfAFailedTensorIsNotDecoded) {
  StartJobOfSums();
  if (IsSkipped() || ranks_[0].cpu_device == nullptr) return;
  CpuRankDevice& device = *ranks_[0].cpu_device;
  const std::vector<std::shared_ptr<Sent>> sent = SendSumsAndBeBusy();
  std::vector<std::shared_ptr<Sent>> others = {SendSum(ranks_[1], 0)};
  WaitUntil([&] { return device.decode_calls() == 1; });
  CompleteSums(1, &others);
  ranks_[0].group->OnFailure(Cancelled("it fails"));
  for (uint64_t i = 1; i < kSums; ++i) EXPECT_EQ(sent[i]->Wait().code(), StatusCode::kCancelled);
  device.BeBusy(false);
  EXPECT_EQ(sent[0]->Wait().code(), StatusCode::kCancelled);
  for (const std::shared_ptr<Sent>& each : others) Check(each->Wait());
  ranks_[0].worker->Stop();
  EXPECT_EQ(device.decoded_parts(), 1u);
  EXPECT_EQ(sent[1]->output->Get(), std::vector<float>(kSumElements, 0));
}

// A worker that has an encoded sum gives it to the one that a lost server has not answered.
TEST_P(LocalGroupTest, LosesAServerOfCompressedSums) {
  others_.resize(1);
  StartJob({"a", "b", "c"});
  if (IsSkipped()) return;
  std::atomic<bool> over{false};
  std::thread killer([&] {
    const uint64_t pushes = others_[0]->counters().pushes + 100;
    while (others_[0]->counters().pushes < pushes && !over)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    EXPECT_FALSE(over);
    others_[0]->Stop();
  });
  ExpectCompressedSums("int8", 20);
  over = true;
  killer.join();
  EXPECT_EQ(coordinator_->failure(), "");
}

// Protocol rules 10 and 18: every rank has its own order, several steps overlap.
// Pinned memory is registered with the Van, so that the device reads gradients from there. Results
// are copied from the Van's slots.
TEST_P(LocalGroupTest, ByRdmaNothingIsCopiedOnTheWayOut) {
  EngineOptions options;
  options.network.transport = Transport::kRdma;
  StartJob({"a", "b"}, options);
  if (IsSkipped()) return;
  ExpectAllKinds();
  for (Rank& rank : ranks_) {
    const WorkerCounters counters = rank.worker->counters();
    EXPECT_GT(counters.pushed_bytes, 0u);
    EXPECT_EQ(counters.van.rdma_bytes_sent, counters.pushed_bytes);
    // The server also reports to its workers once in a while, and that is not a result.
    EXPECT_GE(counters.van.bytes_copied, counters.received_bytes);
    EXPECT_LT(counters.van.bytes_copied, counters.received_bytes + counters.pushed_bytes / 10);
  }
}

TEST_P(LocalGroupTest, TwoHundredTensorsInDifferentOrder) {
  StartJob({"a", "b", "a", "a"});
  if (IsSkipped()) return;
  constexpr int kTensors = 200;
  constexpr int kSteps = 20;
  OnEachRank([&](Rank& mine, int32_t rank) {
    std::mt19937 random(rank);
    std::vector<int> order(kTensors);
    std::iota(order.begin(), order.end(), 0);
    for (int step = 0; step < kSteps; ++step) {
      std::shuffle(order.begin(), order.end(), random);
      std::vector<std::shared_ptr<Sent>> sent(kTensors);
      for (const int i : order) {
        sent[i] = mine.Send(Tensor("tensor " + std::to_string(i), i * 11),
                            std::vector<float>(i * 11, i + step * 0.5f + rank));
      }
      for (int i = 0; i < kTensors; ++i) {
        const Status status = sent[i]->Wait();
        ASSERT_TRUE(status.ok()) << status.ToString();
        ASSERT_EQ(sent[i]->output->Get(), std::vector<float>(i * 11, 4 * i + step * 2 + 6.0f));
      }
    }
  });
}

class DisagreementTest : public LocalGroupTest {
 protected:
  // One worker has another length; the name works again afterwards.
  void ExpectAnErrorOnAllRanks(int32_t dissenter) {
    OnEachRank([&](Rank& mine, int32_t rank) {
      for (int repeat = 0; repeat < 3; ++repeat) {
        const int64_t count = 3000 + (rank == dissenter ? 2000 : 0);
        const auto disputed = mine.Send(Tensor("disputed", count), std::vector<float>(count));
        const Status status = disputed->Wait();
        EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.ToString();
        EXPECT_NE(status.message().find("disagree"), std::string::npos) << status.message();
        const auto agreed = mine.Send(Tensor("disputed", 10), std::vector<float>(10, 1));
        const Status again = agreed->Wait();
        ASSERT_TRUE(again.ok()) << again.ToString();
        EXPECT_EQ(agreed->output->Get(), std::vector<float>(10, size()));
      }
    });
  }
};

INSTANTIATE_TEST_SUITE_P(With, DisagreementTest, ::testing::Values(false, true),
                         [](const auto& info) { return info.param ? "Gpus" : "Arithmetic"; });

TEST_P(DisagreementTest, WithinAHost) {
  StartJob({"a", "a", "a"});
  if (!IsSkipped()) ExpectAnErrorOnAllRanks(1);
}

TEST_P(DisagreementTest, WithinOneOfTwoHosts) {
  EngineOptions options;
  options.timeouts.operation_timeout = 4;  // of the host that agrees in itself
  StartJob({"a", "a", "b"}, options);
  if (IsSkipped()) return;
  OnEachRank([&](Rank& mine, int32_t rank) {
    const int64_t count = rank == 1 ? 5 : 4;
    const Status status = mine.Send(Tensor("disputed", count), std::vector<float>(count))->Wait();
    EXPECT_FALSE(status.ok());
    if (rank < 2) std::this_thread::sleep_for(std::chrono::seconds(2));
    EXPECT_TRUE(mine.Send(Tensor("other", 4), std::vector<float>(4))->Wait().ok());
  });
}

TEST_P(DisagreementTest, BetweenHosts) {
  StartJob({"a", "a", "b"});
  if (!IsSkipped()) ExpectAnErrorOnAllRanks(2);
}

TEST_P(LocalGroupTest, WhoLeavesIsNamedToThoseWhoWait) {
  StartJob({"a", "a"});
  if (IsSkipped()) return;
  OnEachRank([&](Rank& mine, int32_t) {
    ASSERT_TRUE(mine.Send(Tensor("both", 4), std::vector<float>(4))->Wait().ok());
  });
  const auto waiting = ranks_[0].Send(Tensor("alone", 4), std::vector<float>(4));
  std::thread leaving([&] { ranks_[1].worker->Stop(); });
  const Status status = waiting->Wait();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.ToString();
  EXPECT_NE(status.message().find("\"alone\""), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("local rank 1 of this host has left"), std::string::npos)
      << status.message();
  leaving.join();
}

TEST_P(LocalGroupTest, ALostServerEndsWhatIsOnItsWay) {
  StartJob({"a", "a", "b"});
  if (IsSkipped()) return;
  // Worker 2 sends nothing: the others' tensor waits at the server.
  std::thread losing([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    server_->Stop();
  });
  OnEachRank([&](Rank& mine, int32_t rank) {
    if (rank == 2) return;
    const Status status = mine.Send(Tensor("t", 5000), std::vector<float>(5000))->Wait();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
    const Status later = mine.Send(Tensor("u", 5), std::vector<float>(5))->Wait();
    EXPECT_EQ(later.code(), StatusCode::kUnavailable) << later.ToString();
  });
  losing.join();
}

TEST_P(LocalGroupTest, AWorkerThatStopsInTheMiddleEndsTheOthersExchanges) {
  StartJob({"a", "a", "b"});
  if (IsSkipped()) return;
  std::vector<std::shared_ptr<Sent>> sent;
  for (const int rank : {0, 1})
    sent.push_back(ranks_[rank].Send(Tensor("t", 5000), std::vector<float>(5000)));
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  ranks_[1].worker->Stop();
  EXPECT_EQ(sent[1]->Wait().code(), StatusCode::kCancelled);
  const Status status = sent[0]->Wait();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable) << status.ToString();
  EXPECT_NE(status.message().find("worker 1"), std::string::npos) << status.message();
}

TEST_P(LocalGroupTest, ATensorThatOneRankNeverSendsEndsAtItsDeadline) {
  EngineOptions options;
  options.timeouts.operation_timeout = 1;
  StartJob({"a", "a"}, options);
  if (IsSkipped()) return;
  OnEachRank([&](Rank& mine, int32_t) {
    ASSERT_TRUE(mine.Send(Tensor("both", 4), std::vector<float>(4))->Wait().ok());
  });
  const Status status = ranks_[0].Send(Tensor("late", 4), std::vector<float>(4))->Wait();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
  // Who comes later learns the same, and the name works again.
  const Status late = ranks_[1].Send(Tensor("late", 4), std::vector<float>(4))->Wait();
  EXPECT_EQ(late.code(), StatusCode::kDeadlineExceeded) << late.ToString();
  OnEachRank([&](Rank& mine, int32_t) {
    const Status again = mine.Send(Tensor("late", 4), std::vector<float>(4))->Wait();
    EXPECT_TRUE(again.ok()) << again.ToString();
  });
}

TEST_P(LocalGroupTest, ARankThatNeverComesIsAnErrorAtTheDeadline) {
  EngineOptions options;
  options.timeouts.operation_timeout = 1;
  without_group_ = 0;
  StartJob({"a", "a"}, options);
  if (IsSkipped()) return;
  const Status status = ranks_[1].Send(Tensor("t", 4), std::vector<float>(4))->Wait();
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded) << status.ToString();
}

TEST_P(LocalGroupTest, OneWorkerAloneCopies) {
  if (GetParam() && !MissingGpus(1).empty()) GTEST_SKIP() << MissingGpus(1);
  job_.worker_hosts = {"a"};
  job_.gpus_share_hosts = true;
  ranks_.resize(1);
  StartRank(0);
  for (int round = 0; round < 3; ++round) {
    const auto sent = ranks_[0].Send(Tensor("t", 1000), std::vector<float>(1000, round));
    const Status status = sent->Wait();
    ASSERT_TRUE(status.ok()) << status.ToString();
    EXPECT_EQ(sent->output->Get(), std::vector<float>(1000, round));
  }
  ranks_[0].worker->Stop();
  EXPECT_FALSE(ranks_[0].Send(Tensor("t", 1), {1})->Wait().ok());
}

// The input is not computed when the collective is called: it is on the stream of the device.
TEST_P(LocalGroupTest, CollectivesOfOneHostAreOnTheirWayBeforeTheirInputs) {
  StartJob({"a", "a"});
  if (IsSkipped()) return;
  std::promise<void> computed;
  ComputeUntil(computed.get_future().share());
  const std::vector<std::shared_ptr<Sent>> sent = SendTwenty(1000);
  for (const std::shared_ptr<Sent>& each : sent) EXPECT_NE(each->WaitForEvent(), nullptr);
  computed.set_value();
  ExpectSums(sent);
}

// As when the host starts a program's next run before the GPU has done with the one before.
TEST_P(LocalGroupTest, ExchangesOfOneNameTakeTurnsWhereTheStreamWaits) {
  StartJob({"a", "a"});
  if (IsSkipped()) return;
  std::promise<void> computed;
  ComputeUntil(computed.get_future().share());
  std::vector<std::shared_ptr<Sent>> sent;
  for (int run = 0; run < 3; ++run) {
    for (Rank& rank : ranks_) {
      const float value = static_cast<float>(run + (&rank - ranks_.data()));
      sent.push_back(rank.SendAhead(Tensor("turns", 1000), std::vector<float>(1000, value)));
    }
  }
  computed.set_value();
  ExpectSums(sent);
}

TEST_P(LocalGroupTest, WhoWaitsForItsTurnFailsWithTheOneBefore) {
  StartJob({"a", "a"});
  if (IsSkipped()) return;
  std::vector<std::shared_ptr<Sent>> sent;  // the other rank never does
  for (int run = 0; run < 3; ++run)
    sent.push_back(ranks_[0].SendAhead(Tensor("turns", 10), std::vector<float>(10)));
  ranks_[1].worker->Stop();
  for (const std::shared_ptr<Sent>& each : sent) EXPECT_FALSE(each->Wait().ok());
}

// Also when the ranks call in different order, and when there is nothing to add up.
TEST_P(LocalGroupTest, TensorsOfOneCallAreOneCollective) {
  StartJob({"a", "a", "a"});
  if (IsSkipped()) return;
  constexpr int kRounds = 5;
  OnEachRank([&](Rank& mine, int32_t rank) {
    int before = 0;
    for (int round = 0; round < kRounds; ++round) {
      // The first round declares them, one by one.
      if (round == 1 && mine.cpu_device != nullptr) before = mine.cpu_device->all_reduces();
      std::vector<std::shared_ptr<Sent>> sent;
      std::vector<DeviceRequest> together;
      for (int i = 0; i < 12; ++i) {
        const int number = rank == 1 ? 11 - i : i;
        sent.push_back(std::make_shared<Sent>());
        sent.back()->input = mine.NewValues(number * 10);
        sent.back()->input->Set(std::vector<float>(number * 10, number + rank + 1.0f));
        DeviceRequest& each = together.emplace_back();
        each.request.tensor = Tensor("together/" + std::to_string(number), number * 10);
        each.request.tensor.average = number % 2 == 1;
        each.request.input = each.request.output = sent.back()->input->pointer();
        each.request.done = [last = sent.back()](const Status& status) {
          last->ended.set_value(status);
        };
        each.on_submitted = [](const DeviceEvent&) {};
      }
      mine.group->Enqueue(mine.stream_handle(), std::move(together));
      for (int i = 0; i < 12; ++i) {
        const int number = rank == 1 ? 11 - i : i;
        const Status status = sent[i]->Wait();
        ASSERT_TRUE(status.ok()) << status.ToString();
        const float average = number + 2.0f;
        EXPECT_EQ(sent[i]->input->Get(),
                  std::vector<float>(number * 10, number % 2 == 1 ? average : 3 * average));
      }
    }
    if (mine.cpu_device != nullptr) {
      EXPECT_EQ(mine.cpu_device->all_reduces() - before, kRounds - 1);
    }
  });
}

// Of two numbers each, which are the rank's + 1. `reported`: gets the rows of all ranks.
template <typename AnyRank>
std::shared_ptr<Sent> SendRows(AnyRank* mine, int32_t rank, int64_t rows, bool has_fixed_rows,
                               std::vector<int64_t>* reported) {
  auto sent = std::make_shared<Sent>();
  sent->input = mine->NewValues(2 * rows);
  sent->input->Set(std::vector<float>(2 * rows, rank + 1.0f));
  ExchangeRequest request;
  request.tensor = Tensor("rows", 2, ExchangeKind::kGather);
  request.tensor.shape = {-1, 2};
  request.input = sent->input->pointer();
  request.gather_rows = rows;
  request.has_fixed_rows = has_fixed_rows;
  request.allocate_output = [=](const std::vector<int64_t>& all) -> void* {
    *reported = all;
    sent->output = mine->NewValues(2 * std::accumulate(all.begin(), all.end(), int64_t{0}) + 1);
    return sent->output->pointer();
  };
  request.done = [sent](const Status& status) { sent->ended.set_value(status); };
  mine->group->Enqueue(mine->stream_handle(), std::move(request));
  return sent;
}

// What XLA compiles has memory for as many rows of each worker.
TEST_P(DisagreementTest, AboutRowsThatAreFixed) {
  StartJob({"a", "a", "a"});
  if (IsSkipped()) return;
  OnEachRank([&](Rank& mine, int32_t rank) {
    for (const bool differ : {true, false, true, false}) {
      std::vector<int64_t> reported;
      const int64_t rows = differ && rank == 1 ? 3 : 2;
      const auto sent = SendRows(&mine, rank, rows, /*has_fixed_rows=*/true, &reported);
      const Status status = sent->Wait();
      if (differ) {
        EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.ToString();
        const std::string own = "with " + std::to_string(rows) + " rows";
        EXPECT_NE(status.message().find(own), std::string::npos) << status.message();
      } else {
        ASSERT_TRUE(status.ok()) << status.ToString();
        EXPECT_EQ(reported, std::vector<int64_t>(3, 2));
      }
    }
  });
}

TEST_P(LocalGroupTest, OneHostGathersRowsAlsoNone) {
  StartJob({"a", "a", "a"});
  if (IsSkipped()) return;
  OnEachRank([&](Rank& mine, int32_t rank) {
    for (const std::vector<int64_t>& rows :
         {std::vector<int64_t>{3, 1, 2}, std::vector<int64_t>{0, 2, 0},
          std::vector<int64_t>{0, 0, 0}}) {
      std::vector<int64_t> reported;
      const auto sent = SendRows(&mine, rank, rows[rank], /*has_fixed_rows=*/false, &reported);
      const Status status = sent->Wait();
      ASSERT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(reported, rows);
      std::vector<float> expected;
      for (int from = 0; from < 3; ++from)
        expected.insert(expected.end(), 2 * rows[from], from + 1);
      std::vector<float> result = sent->output->Get();
      result.pop_back();
      EXPECT_EQ(result, expected);
    }
  });
  EXPECT_EQ(server_->counters().pushes, 0u);
}

TEST_P(LocalGroupTest, GroupsEndInOrder) {
  StartJob({"a", "a", "b"});
  if (IsSkipped()) return;
  OnEachRank([&](Rank& mine, int32_t) {
    ASSERT_TRUE(mine.Send(Tensor("t", 4), std::vector<float>(4))->Wait().ok());
    const auto begin = std::chrono::steady_clock::now();
    mine.worker->Stop();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(3));
    if (mine.cpu_device != nullptr) {
      EXPECT_EQ(mine.cpu_device->finished(), 1);
    }
  });
}

}  // namespace
}  // namespace byteps

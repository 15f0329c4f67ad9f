// Whole jobs of workers with GPUs: a coordinator, a server and the workers of several hosts in this
// process, over real sockets. Everything runs twice: with GPUs, skipped where there are not enough,
// and with arithmetic for GPUs and NCCL, so that order and bookkeeping are tested everywhere.
#include "cc/staging/local_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <future>
#include <map>
#include <numeric>
#include <random>
#include <thread>

#include "cc/codec/testing/expected_sum.h"
#include "cc/coordinator/coordinator.h"
#include "cc/gpu/gpu_rank_device.h"
#include "cc/gpu/testing/test_gpus.h"
#include "cc/server/server.h"
#include "cc/staging/testing/cpu_rank_device.h"
#include "cc/van/rdma/testing/loopback_verbs.h"

namespace byteps {
namespace {

constexpr auto kPatience = std::chrono::seconds(30);

// Floats on a device.
class Values {
 public:
  Values(std::shared_ptr<GpuDevice> gpu, CudaStream* stream, size_t count)
      : stream_(stream), on_cpu_(gpu == nullptr ? count : 0) {
    if (gpu != nullptr) on_gpu_ = NewDeviceBuffer(gpu, std::max<size_t>(count * sizeof(float), 1));
    count_ = count;
  }
  void Set(const std::vector<float>& values) {
    ASSERT_EQ(values.size(), count_);
    if (on_gpu_ == nullptr) {
      on_cpu_ = values;
    } else if (count_ > 0) {
      std::vector<uint8_t> bytes(count_ * sizeof(float));
      std::memcpy(bytes.data(), values.data(), bytes.size());
      Upload(bytes, *on_gpu_, stream_);
    }
  }
  std::vector<float> Get() const {
    if (on_gpu_ == nullptr) return on_cpu_;
    std::vector<float> values(count_);
    const std::vector<uint8_t> bytes = Download(*on_gpu_, stream_);
    if (count_ > 0) std::memcpy(values.data(), bytes.data(), count_ * sizeof(float));
    return values;
  }
  void* pointer() { return on_gpu_ != nullptr ? on_gpu_->pointer() : on_cpu_.data(); }

 private:
  CudaStream* const stream_;
  std::vector<float> on_cpu_;
  std::unique_ptr<DeviceBuffer> on_gpu_;
  size_t count_ = 0;
};

struct Sent {
  std::unique_ptr<Values> input;
  std::unique_ptr<Values> output;
  std::promise<Status> ended;
  std::promise<DeviceMark> on_its_way;

  DeviceMark mark;  // that has come

  // Null if it does not come.
  DeviceMark WaitForMark() {
    std::future<DeviceMark> come = on_its_way.get_future();
    if (come.wait_for(kPatience) == std::future_status::ready) mark = come.get();
    return mark;
  }
  Status Wait() {
    std::future<Status> end = ended.get_future();
    if (end.wait_for(kPatience) != std::future_status::ready) return Internal("did not end");
    return end.get();
  }
};

struct Rank {
  std::shared_ptr<GpuDevice> gpu;  // null: arithmetic
  std::unique_ptr<CudaStream> stream;
  std::unique_ptr<Worker> worker;
  std::shared_ptr<LocalGroup> group;
  CpuRankDevice* cpu_device = nullptr;

  CudaStreamHandle stream_handle() const { return stream != nullptr ? stream->handle() : nullptr; }
  std::unique_ptr<Values> NewValues(size_t count) const {
    return std::make_unique<Values>(gpu, stream.get(), count);
  }

  std::shared_ptr<Sent> Send(const TensorDescription& tensor, const std::vector<float>& values) {
    auto sent = std::make_shared<Sent>();
    sent->input = NewValues(values.size());
    sent->output = NewValues(values.size());
    sent->input->Set(values);
    Send(tensor, sent);
    return sent;
  }
  void Send(const TensorDescription& tensor, const std::shared_ptr<Sent>& sent) {
    ExchangeRequest request;
    request.tensor = tensor;
    request.input = sent->input->pointer();
    request.output = sent->output->pointer();
    request.done = [sent](const Status& status) { sent->ended.set_value(status); };
    group->Enqueue(stream_handle(), std::move(request));
  }

  // In place, told when it is on its way.
  std::shared_ptr<Sent> SendAhead(const TensorDescription& tensor,
                                  const std::vector<float>& values) {
    auto sent = std::make_shared<Sent>();
    sent->input = NewValues(values.size());
    sent->input->Set(values);
    ExchangeRequest request;
    request.tensor = tensor;
    request.input = request.output = sent->input->pointer();
    request.done = [sent](const Status& status) { sent->ended.set_value(status); };
    group->Enqueue(stream_handle(), std::move(request),
                   [sent](const DeviceMark& end) { sent->on_its_way.set_value(end); });
    return sent;
  }
};

TensorDescription Tensor(const std::string& name, int64_t count,
                         ExchangeKind kind = ExchangeKind::kSum) {
  TensorDescription tensor;
  tensor.name = name;
  tensor.shape = {count};
  tensor.kind = kind;
  return tensor;
}

// Whether there are GPUs in it.
class LocalGroupTest : public ::testing::TestWithParam<bool> {
 protected:
  LocalGroupTest() { verbs::ReplaceSystemVerbs(verbs_.table()); }
  ~LocalGroupTest() override { verbs::ReplaceSystemVerbs(nullptr); }

  void StartJob(const std::vector<std::string>& hosts, EngineOptions options = {},
                bool gpus_share_hosts = true) {
    if (GetParam()) {
      // NCCL wants a GPU for each rank of a host.
      std::map<std::string, int> ranks;
      int most = 0;
      for (const std::string& host : hosts) most = std::max(most, ++ranks[host]);
      const std::string missing = MissingGpus(most);
      if (!missing.empty()) GTEST_SKIP() << missing;
      const Nccl* nccl = nullptr;
      const Status status = Nccl::Get(&nccl);
      if (!status.ok()) GTEST_SKIP() << status.message();
    }
    if (options.flow.part_bytes == 0) options.flow.part_bytes = 4096;
    options.timeouts.heartbeat_interval = 0.2;
    job_.job_id = "group-test";
    job_.options = options;
    job_.worker_hosts = hosts;
    job_.gpus_share_hosts = gpus_share_hosts;
    job_.server_hosts.assign(1 + others_.size(), "server");
    coordinator_ = std::make_unique<Coordinator>(options);
    Check(coordinator_->Listen("127.0.0.1", 0));
    job_.coordinator_endpoint = coordinator_->endpoint();
    server_ = std::make_unique<Server>(options);
    for (std::unique_ptr<Server>& other : others_) other = std::make_unique<Server>(options);
    std::vector<Server*> servers = {server_.get()};
    for (const std::unique_ptr<Server>& other : others_) servers.push_back(other.get());
    for (Server* server : servers) {
      Check(server->Listen("127.0.0.1", 0));
      job_.server_endpoints.push_back(server->endpoint());
    }
    Check(coordinator_->Start(job_));
    for (size_t rank = 0; rank < servers.size(); ++rank)
      Check(servers[rank]->Start(job_, static_cast<int32_t>(rank)));
    ranks_.resize(hosts.size());
    for (int32_t rank = 0; rank < size(); ++rank) StartRank(rank);
  }

  void StartRank(int32_t rank) {
    Rank& mine = ranks_[rank];
    mine.worker = std::make_unique<Worker>(job_, rank);
    Check(mine.worker->Start());
    std::shared_ptr<RankDevice> device;
    if (GetParam()) {
      const auto& hosts = job_.worker_hosts;
      const auto local_rank = std::count(hosts.begin(), hosts.begin() + rank, hosts[rank]);
      const bool are_enough = GpuDevice::Count() >= size();
      mine.gpu = OpenGpu(are_enough ? rank : static_cast<int32_t>(local_rank));
      mine.stream = NewStream(mine.gpu);
      Check(GpuRankDevice::Create(mine.gpu, PinnedPool::Create(PinnedMemoryOf(mine.gpu)), {},
                                  &device));
    } else {
      const auto cpu_device = std::make_shared<CpuRankDevice>();
      mine.cpu_device = cpu_device.get();
      if (!devices_encode_) cpu_device->EncodeNothing();
      device = cpu_device;
    }
    if (rank == without_group_) return;
    Check(LocalGroup::Create(mine.worker.get(), std::move(device), &mine.group));
  }

  // Workers leave together, as in a real job.
  void TearDown() override {
    std::vector<std::thread> threads;
    for (Rank& rank : ranks_) {
      threads.emplace_back([&rank] {
        if (rank.worker != nullptr) rank.worker->Stop();
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (Rank& rank : ranks_) rank.worker.reset();
    ranks_.clear();
  }

  // The devices that are arithmetic are busy until then.
  void ComputeUntil(const std::shared_future<void>& end) {
    if (GetParam()) return;
    for (Rank& rank : ranks_) rank.cpu_device->Compute([end] { end.wait(); });
  }

  // Each of 20 tensors, which two ranks send for ExpectSumsOfTwo.
  std::vector<std::shared_ptr<Sent>> SendTwenty(size_t count) {
    std::vector<std::shared_ptr<Sent>> sent;
    for (int tensor = 0; tensor < 20; ++tensor) {
      for (Rank& rank : ranks_) {
        const float value = static_cast<float>(tensor + (&rank - ranks_.data()));
        sent.push_back(
            rank.SendAhead(Tensor("ahead/" + std::to_string(tensor), static_cast<int64_t>(count)),
                           std::vector<float>(count, value)));
      }
    }
    return sent;
  }

  // The rank's stream waits for the result from here on.
  static void HoldUp(const Rank& rank, Sent& sent) {
    const DeviceMark mark = sent.WaitForMark();
    ASSERT_NE(mark, nullptr);
    Check(mark->HoldUp(rank.stream_handle()));
  }

  // Two ranks have sent n and n + 1, for n = 0, 1 and so on.
  static void ExpectSumsOfTwo(const std::vector<std::shared_ptr<Sent>>& sent, size_t count = 1000) {
    for (size_t i = 0; i < sent.size(); ++i) {
      const Status status = sent[i]->Wait();
      ASSERT_TRUE(status.ok()) << status.ToString();
      const float sum = static_cast<float>(2 * (i / 2) + 1);
      EXPECT_EQ(sent[i]->input->Get(), std::vector<float>(count, sum));
    }
  }

  template <typename Body>
  void OnEachRank(Body body) {
    std::vector<std::thread> threads;
    for (int32_t rank = 0; rank < size(); ++rank) {
      threads.emplace_back([&, rank] { body(ranks_[rank], rank); });
    }
    for (std::thread& thread : threads) thread.join();
  }

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

  int32_t size() const { return static_cast<int32_t>(ranks_.size()); }
  static void Check(const Status& status) { ASSERT_TRUE(status.ok()) << status.ToString(); }

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

  LoopbackVerbs verbs_;         // where a job goes by RDMA
  int32_t without_group_ = -1;  // a worker that uses no GPU yet
  JobDescription job_;
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Server> server_;
  bool devices_encode_ = true;                   // of arithmetic
  std::vector<std::unique_ptr<Server>> others_;  // as many as there are to be besides that one
  std::vector<Rank> ranks_;
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

// One after the other, while parts are on their way.
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
    tensor.codec = CodecNamed("natural")->name();
    const auto sent = mine.Send(tensor, std::vector<float>(kCompressed, rank + 1.0f));
    const Status status = sent->Wait();
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (const float value : sent->output->Get()) ASSERT_NEAR(value, 3, 0.02);
    if (mine.cpu_device == nullptr) return;
    EXPECT_EQ(mine.cpu_device->encoded_parts(), 0u);
    EXPECT_GT(mine.cpu_device->decoded_parts(), 0u);
  });
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
  for (const std::shared_ptr<Sent>& each : sent) EXPECT_NE(each->WaitForMark(), nullptr);
  computed.set_value();
  ExpectSumsOfTwo(sent);
}

// A worker that is alone on its host: its stream waits for what servers send, and copies it.
TEST_P(LocalGroupTest, StreamsWaitForServersBeforeTheirInputsAreComputed) {
  StartJob({"a", "b"});
  if (IsSkipped()) return;
  std::promise<void> computed;
  ComputeUntil(computed.get_future().share());
  const std::vector<std::shared_ptr<Sent>> sent = SendTwenty(5000);
  for (size_t i = 0; i < sent.size(); ++i) HoldUp(ranks_[i % 2], *sent[i]);
  computed.set_value();
  ExpectSumsOfTwo(sent, 5000);
}

TEST_P(LocalGroupTest, RunsOfAProgramTakeTurnsWhereTheStreamWaitsForServers) {
  StartJob({"a", "b"});
  if (IsSkipped()) return;
  constexpr int kRuns = 20;
  std::vector<std::shared_ptr<Sent>> sent(2 * kRuns);
  OnEachRank([&](Rank& mine, int32_t rank) {
    for (int run = 0; run < kRuns; ++run) {
      // Nothing keeps a run's memory for longer than until the next but one.
      if (mine.cpu_device != nullptr) {
        EXPECT_LE(mine.cpu_device->pinned_pool().counters().bytes_in_use, 200000u);
      }
      auto& each = sent[2 * run + rank] = mine.SendAhead(
          Tensor("turns", 5000), std::vector<float>(5000, static_cast<float>(run + rank)));
      HoldUp(mine, *each);
    }
  });
  ExpectSumsOfTwo(sent, 5000);
}

// Copies wait for their inputs one behind the other. So the first input that a run computes must
// not come behind the last one, though the run before has waited for that first.
TEST_P(LocalGroupTest, TheNextRunIsPlacedInTheOrderOfItsStarts) {
  StartJob({"a", "b"});
  if (IsSkipped()) return;
  std::promise<void> first, last;
  std::vector<std::shared_ptr<Sent>> sent;
  const auto send = [&](const char* name) {
    for (Rank& rank : ranks_)
      sent.push_back(rank.SendAhead(Tensor(name, 10), std::vector<float>(10, 1)));
  };
  const auto hold_up = [&](size_t i) { HoldUp(ranks_[i % 2], *sent[i]); };
  ComputeUntil(first.get_future().share());
  send("early");
  send("late");
  for (const size_t i : {2, 3, 0, 1}) hold_up(i);
  send("early");
  ComputeUntil(last.get_future().share());
  send("late");
  first.set_value();
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (server_->counters().pushes < 6 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_GE(server_->counters().pushes, 6u);
  last.set_value();
  for (const size_t i : {4, 5, 6, 7}) hold_up(i);
  for (const std::shared_ptr<Sent>& each : sent) {
    Check(each->Wait());
    EXPECT_EQ(each->input->Get(), std::vector<float>(10, 2));
  }
}

// A module that CUDA loads keeps all others out until the stream that waits goes on. So what it
// waits for must come without a call of the device's, also where the next run of the program has
// been started already.
TEST_P(LocalGroupTest, WhatAStreamWaitsForComesWhileTheDeviceIsBusy) {
  StartJob({"a", "b"});
  if (IsSkipped() || ranks_[0].cpu_device == nullptr) return;
  const auto set_busy = [&](bool is_busy) {
    for (Rank& rank : ranks_) rank.cpu_device->BeBusy(is_busy);
  };
  std::promise<void> first, last;
  ComputeUntil(first.get_future().share());
  const std::vector<std::shared_ptr<Sent>> sent = SendTwenty(5000);
  for (size_t i = 0; i < sent.size(); ++i) HoldUp(ranks_[i % 2], *sent[i]);
  const std::vector<std::shared_ptr<Sent>> next = SendTwenty(5000);
  ComputeUntil(last.get_future().share());
  set_busy(true);
  first.set_value();
  for (const std::shared_ptr<Sent>& each : sent) Check(each->Wait());
  set_busy(false);
  last.set_value();
  for (size_t i = 0; i < next.size(); ++i) HoldUp(ranks_[i % 2], *next[i]);
  ExpectSumsOfTwo(next, 5000);
}

// The stream would wait for ever for what does not come, and all that is behind it with it.
TEST_P(LocalGroupTest, AStreamThatWaitsForALostWorkerGoesOn) {
  StartJob({"a", "b"});
  if (IsSkipped()) return;
  const auto other = ranks_[1].Send(Tensor("half", 8), std::vector<float>(8, 1));
  std::vector<std::shared_ptr<Sent>> sent;
  for (const char* name : {"half", "none"}) {
    sent.push_back(ranks_[0].SendAhead(Tensor(name, 5000), std::vector<float>(5000, 7)));
    const DeviceMark mark = sent.back()->WaitForMark();
    if (std::string(name) == "half") continue;  // the shapes differ: it fails
    ASSERT_NE(mark, nullptr);
    Check(mark->HoldUp(ranks_[0].stream_handle()));
  }
  EXPECT_FALSE(other->Wait().ok());
  ranks_[1].worker->Stop();
  for (const std::shared_ptr<Sent>& each : sent) EXPECT_FALSE(each->Wait().ok());
  EXPECT_EQ(sent.back()->input->Get(), std::vector<float>(5000, 0));
}

TEST_P(LocalGroupTest, WhatNoStreamWaitsForEndsByItself) {
  StartJob({"a", "b"});
  if (IsSkipped()) return;
  OnEachRank([&](Rank& mine, int32_t rank) {
    for (int run = 0; run < 3; ++run) {
      const auto sent = mine.SendAhead(Tensor("left", 5000), std::vector<float>(5000, 3));
      const DeviceMark mark = sent->WaitForMark();
      ASSERT_NE(mark, nullptr);
      rank == 0 ? mark->EndByItself() : Check(mark->HoldUp(mine.stream_handle()));
      Check(sent->Wait());
      EXPECT_EQ(sent->input->Get(), std::vector<float>(5000, 6));
    }
  });
}

TEST_P(LocalGroupTest, AStreamCopiesAResultToWhereItIsWanted) {
  StartJob({"a", "b"});
  if (IsSkipped()) return;
  OnEachRank([&](Rank& mine, int32_t) {
    const auto sent = mine.SendAhead(Tensor("elsewhere", 100000), std::vector<float>(100000, 3));
    const std::unique_ptr<Values> wanted = mine.NewValues(100000);
    const DeviceMark mark = sent->WaitForMark();
    ASSERT_NE(mark, nullptr);
    Check(mark->CopyResult(mine.stream_handle(), wanted->pointer()));
    Check(sent->Wait());
    EXPECT_EQ(wanted->Get(), std::vector<float>(100000, 6));
    EXPECT_EQ(sent->input->Get(), std::vector<float>(100000, 3));
  });
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
  ExpectSumsOfTwo(sent);
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
        each.on_its_way = [](const DeviceMark&) {};
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

TEST_P(LocalGroupTest, OneHostGathersRowsAlsoNone) {
  StartJob({"a", "a", "a"});
  if (IsSkipped()) return;
  OnEachRank([&](Rank& mine, int32_t rank) {
    for (const std::vector<int64_t>& rows :
         {std::vector<int64_t>{3, 1, 2}, std::vector<int64_t>{0, 2, 0},
          std::vector<int64_t>{0, 0, 0}}) {
      TensorDescription tensor = Tensor("rows", 2, ExchangeKind::kGather);
      tensor.shape = {-1, 2};
      auto sent = std::make_shared<Sent>();
      sent->input = mine.NewValues(2 * rows[rank]);
      sent->input->Set(std::vector<float>(2 * rows[rank], rank + 1.0f));
      std::vector<int64_t> told;
      ExchangeRequest request;
      request.tensor = tensor;
      request.input = sent->input->pointer();
      request.gather_rows = rows[rank];
      request.allocate_output = [&](const std::vector<int64_t>& all) -> void* {
        told = all;
        sent->output = mine.NewValues(2 * std::accumulate(all.begin(), all.end(), int64_t{0}) + 1);
        return sent->output->pointer();
      };
      request.done = [sent](const Status& status) { sent->ended.set_value(status); };
      mine.group->Enqueue(mine.stream_handle(), std::move(request));
      const Status status = sent->Wait();
      ASSERT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(told, rows);
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

// The local ranks of a host as threads, with a GPU each and messages handed over in memory.
#include "cc/gpu/local_group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <future>
#include <numeric>
#include <random>

#include "cc/gpu/test_gpus.h"

namespace byteps {
namespace {

constexpr auto kPatience = std::chrono::seconds(100);

struct LocalRank {
  std::shared_ptr<GpuDevice> device;
  std::unique_ptr<CudaStream> stream;
  std::unique_ptr<LocalGroup> group;
};

class LocalGroupTest : public ::testing::Test {
 protected:
  void SetUp() override {
    BYTEPS_NEED_GPUS(2);
    const Nccl* nccl = nullptr;
    const Status status = Nccl::Get(&nccl);
    if (!status.ok()) GTEST_SKIP() << status.message();
    ranks_.resize(GpuDevice::Count());
    // Local rank 0 last: it sends at once, to ranks that have to be there.
    for (int32_t rank = size(); rank-- > 0;) {
      LocalRank& mine = ranks_[rank];
      mine.device = OpenGpu(rank);
      mine.stream = NewStream(mine.device);
      const auto send = [this](int32_t to, const LocalMessage& message) { Deliver(to, message); };
      const Status created = LocalGroup::Create(mine.device, rank, size(), send, &mine.group);
      ASSERT_TRUE(created.ok()) << created.ToString();
      Forward(rank);
    }
  }

  // A group leaves when all have finished, and they leave together.
  void TearDown() override {
    std::vector<std::thread> threads;
    for (LocalRank& mine : ranks_) threads.emplace_back([&mine] { mine.group.reset(); });
    for (std::thread& thread : threads) thread.join();
  }

  int32_t size() const { return static_cast<int32_t>(ranks_.size()); }

  // Rank 0 sends to itself while it is being created.
  void Deliver(int32_t to, const LocalMessage& message) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (ranks_[to].group != nullptr) return ranks_[to].group->Receive(message);
    early_.emplace_back(to, message);
  }
  void Forward(int32_t rank) {
    std::lock_guard<std::mutex> lock(mutex_);
    for (const auto& [to, message] : early_) {
      if (to == rank) ranks_[to].group->Receive(message);
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

  static Status Exchange(LocalRank& mine, const TensorDescription& tensor,
                         const DeviceBuffer& input, const DeviceBuffer& output) {
    auto ended = std::make_shared<std::promise<Status>>();
    LocalExchange exchange;
    exchange.tensor = tensor;
    exchange.input = input.pointer();
    exchange.output = output.pointer();
    exchange.stream = mine.stream->handle();
    exchange.done = [ended](const Status& status) { ended->set_value(status); };
    mine.group->Enqueue(std::move(exchange));
    std::future<Status> end = ended->get_future();
    if (end.wait_for(kPatience) != std::future_status::ready) return Internal("did not end");
    return end.get();
  }

  static std::vector<uint8_t> Bytes(const std::vector<float>& values) {
    std::vector<uint8_t> bytes(values.size() * sizeof(float));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }

  std::mutex mutex_;
  std::vector<LocalRank> ranks_;
  std::vector<std::pair<int32_t, LocalMessage>> early_;
};

TEST_F(LocalGroupTest, SumsAveragesMinimaMaximaAndBroadcasts) {
  OnEachRank([&](LocalRank& mine, int32_t rank) {
    const float n = static_cast<float>(size());
    const auto input = NewDeviceBuffer(mine.device, 8);
    const auto output = NewDeviceBuffer(mine.device, 8);
    Upload(Bytes({rank + 1.0f, -rank - 1.0f}), *input, mine.stream.get());
    TensorDescription tensor;
    tensor.shape = {2};
    const auto expect = [&](const std::string& name, const std::vector<float>& expected) {
      tensor.name = name;
      const Status status = Exchange(mine, tensor, *input, *output);
      EXPECT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(Download(*output, mine.stream.get()), Bytes(expected)) << name;
    };
    expect("sum", {n * (n + 1) / 2, -n * (n + 1) / 2});
    tensor.average = true;
    expect("average", {(n + 1) / 2, -(n + 1) / 2});
    tensor.average = false;
    tensor.kind = ExchangeKind::kMin;
    expect("min", {1, -n});
    tensor.kind = ExchangeKind::kMax;
    expect("max", {n, -1});
    tensor.kind = ExchangeKind::kBroadcast;
    tensor.root_rank = 1;
    expect("broadcast", {2, -2});
  });
}

// Every rank has its own order, and computes while others exchange.
TEST_F(LocalGroupTest, TwoHundredTensorsInDifferentOrder) {
  constexpr int kTensors = 200;
  constexpr int kSteps = 100;
  OnEachRank([&](LocalRank& mine, int32_t rank) {
    std::mt19937 random(rank);
    std::vector<std::unique_ptr<DeviceBuffer>> inputs;
    std::vector<std::unique_ptr<DeviceBuffer>> outputs;
    std::vector<int> order(kTensors);
    std::iota(order.begin(), order.end(), 0);
    for (int i = 0; i < kTensors; ++i) {
      inputs.push_back(NewDeviceBuffer(mine.device, 1 + i * 101));
      outputs.push_back(NewDeviceBuffer(mine.device, 1 + i * 101));
    }
    const CudaDriver& driver = mine.device->driver();
    for (int step = 0; step < kSteps; ++step) {
      std::shuffle(order.begin(), order.end(), random);
      std::atomic<int> left{kTensors};
      std::promise<void> all;
      for (const int i : order) {
        {
          const ScopedContext scope(*mine.device);
          ASSERT_EQ(driver.cuMemsetD8Async(inputs[i]->address(), (i + step) % 20 + rank,
                                           inputs[i]->bytes(), mine.stream->handle()),
                    0);
        }
        LocalExchange exchange;
        exchange.tensor.name = "tensor " + std::to_string(i);
        exchange.tensor.dtype = DType::kUInt8;
        exchange.tensor.shape = {static_cast<int64_t>(inputs[i]->bytes())};
        exchange.input = inputs[i]->pointer();
        exchange.output = outputs[i]->pointer();
        exchange.stream = mine.stream->handle();
        exchange.done = [&](const Status& status) {
          EXPECT_TRUE(status.ok()) << status.ToString();
          if (--left == 0) all.set_value();
        };
        mine.group->Enqueue(std::move(exchange));
      }
      ASSERT_EQ(all.get_future().wait_for(kPatience), std::future_status::ready);
      if (step % 10 != 0) continue;
      for (int i = 0; i < kTensors; ++i) {
        const int expected = size() * ((i + step) % 20) + size() * (size() - 1) / 2;
        const std::vector<uint8_t> result = Download(*outputs[i], mine.stream.get());
        EXPECT_EQ(std::count(result.begin(), result.end(), expected), result.size()) << i;
      }
    }
  });
}

TEST_F(LocalGroupTest, ADisagreementIsAnErrorOnAllRanks) {
  OnEachRank([&](LocalRank& mine, int32_t rank) {
    const auto input = NewDeviceBuffer(mine.device, 64);
    const auto output = NewDeviceBuffer(mine.device, 64);
    TensorDescription tensor;
    tensor.name = "disputed";
    tensor.shape = {rank == 1 ? 4 : 3};
    const Status status = Exchange(mine, tensor, *input, *output);
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
    EXPECT_NE(status.message().find("disagree about tensor \"disputed\": here it is float32["),
              std::string::npos)
        << status.message();
    // Nothing else suffers.
    tensor.shape = {3};
    EXPECT_TRUE(Exchange(mine, tensor, *input, *output).ok());
  });
}

TEST_F(LocalGroupTest, AFailureEndsWhatWaits) {
  LocalRank& mine = ranks_[0];
  const auto buffer = NewDeviceBuffer(mine.device, 64);
  TensorDescription tensor;
  tensor.name = "alone";
  tensor.shape = {4};
  std::thread failing([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(500));
    for (LocalRank& each : ranks_) each.group->Fail(Unavailable("worker 1 is lost"));
  });
  EXPECT_EQ(Exchange(mine, tensor, *buffer, *buffer).message(), "worker 1 is lost");
  failing.join();
  EXPECT_EQ(Exchange(mine, tensor, *buffer, *buffer).message(), "worker 1 is lost");
}

}  // namespace
}  // namespace byteps

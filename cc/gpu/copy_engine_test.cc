#include "cc/gpu/copy_engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <future>
#include <random>

#include "cc/gpu/pinned_pool.h"
#include "cc/gpu/testing/test_gpus.h"

namespace byteps {
namespace {

constexpr auto kTestTimeout = std::chrono::seconds(60);

// On the device, before and after it was on the host.
struct TravellingTensor {
  std::unique_ptr<DeviceBuffer> gpu;
  std::unique_ptr<DeviceBuffer> result;
  PinnedPool::Block block;
};

class CopyEngineTest : public ::testing::Test {
 protected:
  void SetUp() override {
    BYTEPS_NEED_GPUS(1);
    device_ = OpenGpu(0);
    const Status status = CopyEngine::Create(device_, &engine_);
    ASSERT_TRUE(status.ok()) << status.ToString();
    pool_ = PinnedPool::Create(PinnedMemoryOf(device_));
    compute_ = NewStream(device_);
  }

  PinnedPool::Block Take(size_t bytes) {
    PinnedPool::Block block;
    const Status status = pool_->Take(bytes, &block);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return block;
  }

  // Starts a copy to the host and returns its end.
  std::future<Status> ToHost(CudaStreamHandle producer, const DeviceBuffer& from, void* to) {
    auto ended = std::make_shared<std::promise<Status>>();
    const Status status = engine_->CopyToHost(
        from.address(), to, from.bytes(),
        [ended](const Status& result) { ended->set_value(result); }, &producer);
    EXPECT_TRUE(status.ok()) << status.ToString();
    return ended->get_future();
  }

  std::future<Status> ToDevice(const void* from, const DeviceBuffer& to) {
    auto ended = std::make_shared<std::promise<Status>>();
    const Status status =
        engine_->CopyToDevice(from, to.address(), to.bytes(),
                              [ended](const Status& result) { ended->set_value(result); });
    EXPECT_TRUE(status.ok()) << status.ToString();
    return ended->get_future();
  }

  // Keeps `stream` busy for some tens of milliseconds, then fills `tensor` with `value`.
  void ComputeSlowly(const CudaStream& stream, const DeviceBuffer& tensor, unsigned char value) {
    constexpr size_t kBytes = size_t{2} << 30;
    if (work_ == nullptr) work_ = NewDeviceBuffer(device_, 2 * kBytes);
    const CudaDriver& driver = device_->driver();
    const ScopedContext scope(*device_);
    for (int i = 0; i < 60; ++i) {
      ASSERT_EQ(driver.cuMemcpyDtoDAsync(work_->address(), work_->address() + kBytes, kBytes,
                                         stream.handle()),
                0);
    }
    ASSERT_EQ(driver.cuMemsetD8Async(tensor.address(), value, tensor.bytes(), stream.handle()), 0);
  }

  // Fills new tensors on the device with `first` and the numbers after it, copies each to the host,
  // adds 1 to its bytes there, and copies it back. Returns when all are back.
  void TakeThereAndBack(const CudaStream& stream, int first, std::mt19937* random,
                        std::vector<TravellingTensor>* tensors) {
    std::atomic<size_t> left{tensors->size()};
    std::promise<void> all;
    for (TravellingTensor& tensor : *tensors) {
      const size_t bytes = 1 + (*random)() % (1 << 20);
      tensor.gpu = NewDeviceBuffer(device_, bytes);
      tensor.result = NewDeviceBuffer(device_, bytes);
      tensor.block = Take(bytes);
      {
        const ScopedContext scope(*device_);
        ASSERT_EQ(device_->driver().cuMemsetD8Async(tensor.gpu->address(), first++, bytes,
                                                    stream.handle()),
                  0);
      }
      const auto back = [&](const Status& status) {
        EXPECT_TRUE(status.ok()) << status.ToString();
        if (--left == 0) all.set_value();
      };
      const auto change = [this, &tensor, bytes, back](const Status& status) {
        EXPECT_TRUE(status.ok()) << status.ToString();
        auto* const data = static_cast<uint8_t*>(tensor.block.get());
        for (size_t k = 0; k < bytes; ++k) ++data[k];
        EXPECT_TRUE(engine_->CopyToDevice(data, tensor.result->address(), bytes, back).ok());
      };
      const CudaStreamHandle producer = stream.handle();
      ASSERT_TRUE(
          engine_->CopyToHost(tensor.gpu->address(), tensor.block.get(), bytes, change, &producer)
              .ok());
    }
    ASSERT_EQ(all.get_future().wait_for(kTestTimeout), std::future_status::ready);
  }

  static void ExpectAll(const void* bytes, size_t count, unsigned char value) {
    const auto* first = static_cast<const unsigned char*>(bytes);
    size_t different = 0;
    for (size_t i = 0; i < count; ++i) different += first[i] != value;
    EXPECT_EQ(different, 0u);
  }

  std::shared_ptr<GpuDevice> device_;
  std::unique_ptr<CopyEngine> engine_;
  std::shared_ptr<PinnedPool> pool_;
  std::unique_ptr<CudaStream> compute_;
  std::unique_ptr<DeviceBuffer> work_;
};

TEST_F(CopyEngineTest, ACopyToTheHostWaitsForItsProducerOnly) {
  constexpr size_t kBytes = 1 << 20;
  const auto tensor = NewDeviceBuffer(device_, kBytes);
  const auto idle = NewStream(device_);
  const auto early = Take(kBytes);
  const auto late = Take(kBytes);
  for (int i = 0; i < 5; ++i) {
    Upload(std::vector<uint8_t>(kBytes, 1), *tensor, idle.get());
    ComputeSlowly(*compute_, *tensor, 2);
    // Behind a stream that has nothing to do the copy is at once, and sees the old bytes: what
    // follows is not an accident.
    std::future<Status> early_end = ToHost(idle->handle(), *tensor, early.get());
    std::future<Status> late_end = ToHost(compute_->handle(), *tensor, late.get());
    ASSERT_EQ(early_end.wait_for(kTestTimeout), std::future_status::ready);
    ASSERT_EQ(late_end.wait_for(kTestTimeout), std::future_status::ready);
    EXPECT_TRUE(early_end.get().ok());
    EXPECT_TRUE(late_end.get().ok());
    ExpectAll(early.get(), kBytes, 1);
    ExpectAll(late.get(), kBytes, 2);
  }
}

TEST_F(CopyEngineTest, TheProducersStreamDoesNotWait) {
  constexpr size_t kBytes = 64 << 20;
  const auto tensor = NewDeviceBuffer(device_, kBytes);
  const auto host = Take(kBytes);
  std::promise<void> gate;
  std::shared_future<void> open = gate.get_future().share();
  const auto ended = std::make_shared<std::promise<void>>();
  std::future<void> end = ended->get_future();
  const CudaStreamHandle producer = compute_->handle();
  ASSERT_TRUE(engine_
                  ->CopyToHost(
                      tensor->address(), host.get(), kBytes,
                      [open, ended](const Status&) {
                        open.wait_for(kTestTimeout);
                        ended->set_value();
                      },
                      &producer)
                  .ok());
  // The exchange that follows the copy has not ended, and yet:
  EXPECT_TRUE(compute_->Synchronize().ok());
  EXPECT_EQ(end.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
  gate.set_value();
  EXPECT_EQ(end.wait_for(kTestTimeout), std::future_status::ready);
}

TEST_F(CopyEngineTest, BytesSurviveTheWayThereAndBack) {
  std::mt19937 random(1);
  const std::vector<size_t> sizes = {1, 3, 4, 255, 4096, 65537, 3000001, 100 << 20};
  for (const size_t bytes : sizes) {
    const auto tensor = NewDeviceBuffer(device_, bytes);
    const auto sent = Take(bytes);
    const auto received = Take(bytes);
    ASSERT_NE(sent, received);
    auto* const words = static_cast<uint8_t*>(sent.get());
    for (size_t i = 0; i < bytes; ++i) words[i] = static_cast<uint8_t>(random());
    std::memset(received.get(), 0xAA, bytes);
    std::future<Status> there = ToDevice(sent.get(), *tensor);
    ASSERT_EQ(there.wait_for(kTestTimeout), std::future_status::ready);
    ASSERT_TRUE(there.get().ok());
    std::future<Status> back = ToHost(compute_->handle(), *tensor, received.get());
    ASSERT_EQ(back.wait_for(kTestTimeout), std::future_status::ready);
    ASSERT_TRUE(back.get().ok());
    EXPECT_EQ(std::memcmp(sent.get(), received.get(), bytes), 0) << bytes;
  }
}

// What a training step does: each tensor to the host, changed there, and back, from several
// threads, all in flight at once.
TEST_F(CopyEngineTest, ManyTensorsAtOnceFromManyThreads) {
  constexpr int kThreads = 4;
  constexpr int kTensors = 50;
  constexpr int kSteps = 10;
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([this, thread] {
      std::mt19937 random(thread);
      const auto stream = NewStream(device_);
      std::vector<TravellingTensor> tensors(kTensors);
      for (int step = 0; step < kSteps; ++step) {
        TakeThereAndBack(*stream, step, &random, &tensors);
        for (int i = 0; i < kTensors; ++i) {
          const std::vector<uint8_t> result = Download(*tensors[i].result, stream.get());
          ExpectAll(result.data(), result.size(), static_cast<unsigned char>(i + step + 1));
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const PinnedPoolCounters counters = pool_->counters();
  EXPECT_EQ(counters.bytes_in_use, 0u);
  std::printf("%llu allocations of pinned memory for %d copies\n",
              static_cast<unsigned long long>(counters.allocations),
              2 * kThreads * kTensors * kSteps);
  EXPECT_LT(counters.allocations, 200u);
}

TEST_F(CopyEngineTest, EndsEveryCopyBeforeItGoes) {
  constexpr size_t kBytes = 1 << 20;
  const auto tensor = NewDeviceBuffer(device_, kBytes);
  const auto host = Take(kBytes);
  ComputeSlowly(*compute_, *tensor, 7);
  std::future<Status> end = ToHost(compute_->handle(), *tensor, host.get());
  engine_.reset();
  ASSERT_EQ(end.wait_for(std::chrono::seconds(0)), std::future_status::ready);
  EXPECT_TRUE(end.get().ok());
  ExpectAll(host.get(), kBytes, 7);
}

TEST_F(CopyEngineTest, AnImpossibleCopyIsAnErrorAtOnce) {
  const auto host = Take(16);
  const Status status =
      engine_->CopyToDevice(host.get(), 12345, 16, [](const Status&) { ADD_FAILURE(); });
  EXPECT_EQ(status.message(), "cuMemcpyHtoDAsync: CUDA_ERROR_INVALID_VALUE (invalid argument)");
}

}  // namespace
}  // namespace byteps

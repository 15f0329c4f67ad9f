// Whole jobs whose tensors are on GPUs: a coordinator, servers, and workers with a GPU each (or
// sharing the only one), in this process. Skipped without a GPU.
#include "cc/staging/gpu_exchanger.h"

#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <numeric>

#include "cc/base/testing/on_threads.h"
#include "cc/coordinator/coordinator.h"
#include "cc/gpu/testing/test_gpus.h"
#include "cc/server/server.h"
#include "cc/worker/worker.h"

namespace byteps {
namespace {

constexpr auto kTestTimeout = std::chrono::seconds(60);
constexpr int kWorkers = 2;

// A tensor on a GPU, its result there, and the end of its exchange.
struct OnGpu {
  std::unique_ptr<DeviceBuffer> input;
  std::unique_ptr<DeviceBuffer> output;
  std::vector<int64_t> rows;
  std::promise<Status> ended;
};

struct GpuWorker {
  std::shared_ptr<Worker> worker;
  std::shared_ptr<GpuDevice> device;
  std::unique_ptr<CudaStream> stream;
  std::unique_ptr<GpuExchanger> exchanger;
};

class GpuExchangerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    BYTEPS_NEED_GPUS(1);
    JobDescription job;
    job.job_id = "gpu-test";
    job.options.flow.part_bytes = 65536;
    job.options.flow.credit_bytes = 4 * 65536;
    coordinator_ = std::make_unique<Coordinator>(job.options);
    ASSERT_TRUE(coordinator_->Listen("127.0.0.1", 0).ok());
    job.coordinator_endpoint = coordinator_->endpoint();
    job.worker_hosts.assign(kWorkers, "host");
    job.gpus_share_hosts = GpuDevice::Count() >= kWorkers && MissingNccl().empty();
    job.server_hosts.assign(1, "host");
    server_ = std::make_unique<Server>(job.options);
    ASSERT_TRUE(server_->Listen("127.0.0.1", 0).ok());
    job.server_endpoints.push_back(server_->endpoint());
    ASSERT_TRUE(coordinator_->Start(job).ok());
    ASSERT_TRUE(server_->Start(job, 0).ok());
    for (int rank = 0; rank < kWorkers; ++rank) {
      GpuWorker& mine = workers_[rank];
      mine.worker = std::make_shared<Worker>(job, rank);
      ASSERT_TRUE(mine.worker->Start().ok());
      mine.device = OpenGpu(rank % GpuDevice::Count());
      mine.stream = NewStream(mine.device);
      const Status status =
          GpuExchanger::Create(mine.device, [&mine] { return mine.worker; }, &mine.exchanger);
      ASSERT_TRUE(status.ok()) << status.ToString();
    }
  }

  // Workers end first, so that no exchange is pending when their GPU's goes, and together.
  void TearDown() override {
    OnEachWorker([](GpuWorker& mine, int) {
      if (mine.worker != nullptr) mine.worker->Stop();
    });
  }

  static std::string MissingNccl() {
    const Nccl* nccl = nullptr;
    return Nccl::Get(&nccl).message();
  }

  // Runs `body` for each worker, each on a thread of its own.
  template <typename Body>
  void OnEachWorker(Body body) {
    OnThreads(kWorkers, [&](int32_t rank) { body(workers_[rank], rank); });
  }

  static std::shared_ptr<OnGpu> Send(GpuWorker& mine, const TensorDescription& tensor,
                                     const std::vector<uint8_t>& values, int64_t rows = 0) {
    auto sent = std::make_shared<OnGpu>();
    // No memory of zero bytes on a GPU.
    sent->input = NewDeviceBuffer(mine.device, std::max<size_t>(values.size(), 1));
    if (!values.empty()) Upload(values, *sent->input, mine.stream.get());
    ExchangeRequest request;
    request.tensor = tensor;
    request.input = sent->input->pointer();
    if (tensor.kind == ExchangeKind::kGather) {
      request.gather_rows = rows;
      request.allocate_output = [&mine, raw = sent.get(), row_bytes = tensor.ByteCount()](
                                    const std::vector<int64_t>& all) -> void* {
        raw->rows = all;
        const int64_t total = std::accumulate(all.begin(), all.end(), int64_t{0});
        raw->output = NewDeviceBuffer(mine.device, std::max<uint64_t>(total * row_bytes, 1));
        return raw->output->pointer();
      };
    } else {
      sent->output = NewDeviceBuffer(mine.device, std::max<size_t>(values.size(), 1));
      request.output = sent->output->pointer();
    }
    request.keep_alive = sent;
    request.done = [raw = sent.get()](const Status& status) { raw->ended.set_value(status); };
    mine.exchanger->Enqueue(mine.stream->handle(), std::move(request));
    return sent;
  }

  static Status Wait(OnGpu& sent) {
    std::future<Status> end = sent.ended.get_future();
    if (end.wait_for(kTestTimeout) != std::future_status::ready) return Internal("did not end");
    return end.get();
  }

  template <typename T>
  static std::vector<uint8_t> Bytes(const std::vector<T>& values) {
    std::vector<uint8_t> bytes(values.size() * sizeof(T));
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return bytes;
  }

  template <typename T>
  static std::vector<T> Result(GpuWorker& mine, const OnGpu& sent, size_t count) {
    std::vector<uint8_t> bytes = Download(*sent.output, mine.stream.get());
    bytes.resize(count * sizeof(T));
    std::vector<T> values(count);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  // Sums of `values_of(rank)` for one element type.
  template <typename T>
  void ExpectSum(DType dtype, const std::vector<T> (&values)[kWorkers],
                 const std::vector<T>& expected) {
    OnEachWorker([&](GpuWorker& mine, int rank) {
      TensorDescription tensor;
      tensor.name = std::string("sum of ") + DTypeName(dtype);
      tensor.dtype = dtype;
      tensor.shape = {static_cast<int64_t>(expected.size())};
      for (int round = 0; round < 3; ++round) {
        const auto sent = Send(mine, tensor, Bytes(values[rank]));
        const Status status = Wait(*sent);
        ASSERT_TRUE(status.ok()) << status.ToString();
        EXPECT_EQ(Result<T>(mine, *sent, expected.size()), expected) << DTypeName(dtype);
      }
    });
  }

  template <typename T>
  void ExpectSumOfNumbers(DType dtype) {
    constexpr size_t kCount = 100003;
    std::vector<T> values[kWorkers];
    std::vector<T> expected(kCount);
    for (size_t i = 0; i < kCount; ++i) {
      for (int rank = 0; rank < kWorkers; ++rank) {
        values[rank].push_back(static_cast<T>((i * 7 + rank * 13) % 31));
        expected[i] += values[rank][i];
      }
    }
    ExpectSum(dtype, values, expected);
  }

  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Server> server_;
  GpuWorker workers_[kWorkers];
};

TEST_F(GpuExchangerTest, SumsOfAllTypes) {
  ExpectSumOfNumbers<float>(DType::kFloat32);
  ExpectSumOfNumbers<double>(DType::kFloat64);
  ExpectSumOfNumbers<int32_t>(DType::kInt32);
  ExpectSumOfNumbers<int64_t>(DType::kInt64);
  ExpectSumOfNumbers<int8_t>(DType::kInt8);
  ExpectSumOfNumbers<uint8_t>(DType::kUInt8);
  // 1 + 2 = 3 and 0.5 + 0.5 = 1, as bits.
  const std::vector<uint16_t> halves[] = {{0x3C00, 0x3800}, {0x4000, 0x3800}};
  ExpectSum(DType::kFloat16, halves, {0x4200, 0x3C00});
  const std::vector<uint16_t> brains[] = {{0x3F80, 0x3F00}, {0x4000, 0x3F00}};
  ExpectSum(DType::kBFloat16, brains, {0x4040, 0x3F80});
}

TEST_F(GpuExchangerTest, AveragesMinimaMaximaAndBroadcasts) {
  OnEachWorker([&](GpuWorker& mine, int rank) {
    const std::vector<float> values = {rank + 1.0f, -rank - 1.0f, 7.0f};
    TensorDescription tensor;
    tensor.shape = {3};
    const auto result = [&](const std::string& name) {
      tensor.name = name;
      const auto sent = Send(mine, tensor, Bytes(values));
      const Status status = Wait(*sent);
      EXPECT_TRUE(status.ok()) << status.ToString();
      return Result<float>(mine, *sent, 3);
    };
    tensor.average = true;
    EXPECT_EQ(result("average"), (std::vector<float>{1.5, -1.5, 7}));
    tensor.average = false;
    tensor.kind = ExchangeKind::kMin;
    EXPECT_EQ(result("min"), (std::vector<float>{1, -2, 7}));
    tensor.kind = ExchangeKind::kMax;
    EXPECT_EQ(result("max"), (std::vector<float>{2, -1, 7}));
    tensor.kind = ExchangeKind::kBroadcast;
    tensor.root_rank = 1;
    EXPECT_EQ(result("broadcast"), (std::vector<float>{2, -2, 7}));
  });
}

TEST_F(GpuExchangerTest, GathersRowsAlsoNone) {
  for (const std::vector<int64_t>& rows :
       {std::vector<int64_t>{3, 1}, std::vector<int64_t>{0, 2}, std::vector<int64_t>{0, 0}}) {
    OnEachWorker([&](GpuWorker& mine, int rank) {
      TensorDescription tensor;
      tensor.name = "rows";
      tensor.kind = ExchangeKind::kGather;
      tensor.shape = {-1, 2};
      const std::vector<float> values(rows[rank] * 2, rank + 1.0f);
      const auto sent = Send(mine, tensor, Bytes(values), rows[rank]);
      const Status status = Wait(*sent);
      ASSERT_TRUE(status.ok()) << status.ToString();
      EXPECT_EQ(sent->rows, rows);
      std::vector<float> expected(rows[0] * 2, 1.0f);
      expected.insert(expected.end(), rows[1] * 2, 2.0f);
      EXPECT_EQ(Result<float>(mine, *sent, expected.size()), expected);
    });
  }
}

TEST_F(GpuExchangerTest, TwoHundredTensorsInOppositeOrder) {
  constexpr int kTensors = 200;
  constexpr int kSteps = 10;
  OnEachWorker([&](GpuWorker& mine, int rank) {
    uint64_t allocations = 0;
    for (int step = 0; step < kSteps; ++step) {
      std::vector<std::shared_ptr<OnGpu>> sent(kTensors);
      for (int k = 0; k < kTensors; ++k) {
        const int i = rank == 0 ? k : kTensors - 1 - k;
        TensorDescription tensor;
        tensor.name = "tensor " + std::to_string(i);
        tensor.shape = {i * 601};
        sent[i] = Send(mine, tensor, Bytes(std::vector<float>(i * 601, i + step * 0.5f + rank)));
      }
      for (int i = 0; i < kTensors; ++i) {
        const Status status = Wait(*sent[i]);
        ASSERT_TRUE(status.ok()) << status.ToString();
        EXPECT_EQ(Result<float>(mine, *sent[i], i * 601),
                  std::vector<float>(i * 601, 2 * i + step + 1.0f));
      }
      // What the first step needed is used again; the order of frees may take a few more.
      if (step == 1) allocations = mine.exchanger->pool_counters().allocations;
    }
    EXPECT_LE(mine.exchanger->pool_counters().allocations, allocations + 20);
  });
}

TEST_F(GpuExchangerTest, ErrorsOfTheExchangeArrive) {
  OnEachWorker([&](GpuWorker& mine, int rank) {
    TensorDescription tensor;
    tensor.name = "disputed";
    tensor.shape = {rank + 1};
    const auto sent = Send(mine, tensor, Bytes(std::vector<float>(rank + 1, 1.0f)));
    EXPECT_EQ(Wait(*sent).code(), StatusCode::kFailedPrecondition);
  });
}

}  // namespace
}  // namespace byteps

// NCCL's collectives as the engine uses them: a thread for each GPU's rank, exact results.
#include "cc/gpu/nccl.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <future>

#include "cc/gpu/testing/test_gpus.h"

namespace byteps {
namespace {

constexpr auto kTestTimeout = std::chrono::seconds(120);
constexpr DType kDTypes[] = {DType::kFloat32, DType::kFloat64, DType::kFloat16, DType::kBFloat16,
                             DType::kInt32,   DType::kInt64,   DType::kInt8,    DType::kUInt8};

// Bits of a whole number from 0 to 256, which each of the types can hold.
void Store(DType dtype, int value, uint8_t* to) {
  const float number = static_cast<float>(value);
  const double wide = value;
  const int64_t whole = value;
  uint32_t bits = 0;
  std::memcpy(&bits, &number, sizeof(bits));
  switch (dtype) {
    case DType::kFloat32: std::memcpy(to, &number, 4); return;
    case DType::kFloat64: std::memcpy(to, &wide, 8); return;
    case DType::kBFloat16:
      bits >>= 16;
      std::memcpy(to, &bits, 2);
      return;
    case DType::kFloat16:
      bits = value == 0 ? 0 : (bits >> 13) - (112 << 10);  // the exponent's bias is 15, not 127
      std::memcpy(to, &bits, 2);
      return;
    default: std::memcpy(to, &whole, DTypeSize(dtype));  // little-endian
  }
}

int RankValue(int rank, size_t index) { return static_cast<int>((index * 7 + rank * 13 + 5) % 31); }

template <typename ValueAt>
std::vector<uint8_t> Tensor(DType dtype, size_t count, ValueAt value_at) {
  std::vector<uint8_t> bytes(count * DTypeSize(dtype));
  for (size_t i = 0; i < count; ++i) Store(dtype, value_at(i), &bytes[i * DTypeSize(dtype)]);
  return bytes;
}

struct Rank {
  int rank = 0;
  int size = 0;
  std::shared_ptr<GpuDevice> device;
  std::unique_ptr<CudaStream> stream;
  std::unique_ptr<NcclCommunicator> communicator;
};

class NcclTest : public ::testing::Test {
 protected:
  void SetUp() override {
    BYTEPS_NEED_GPUS(1);  // a group of one adds up nothing, but launches all the same
    const Nccl* nccl = nullptr;
    const Status status = Nccl::Get(&nccl);
    if (!status.ok()) GTEST_SKIP() << status.message();
    std::printf("NCCL %d, %d GPUs\n", nccl->version, GpuDevice::Count());
  }

  // Runs `body` on every rank of a new group at once.
  template <typename Body>
  void OnAllRanks(Body body) {
    NcclUniqueId id;
    ASSERT_TRUE(NcclCommunicator::NewGroup(&id).ok());
    const int size = GpuDevice::Count();
    std::vector<std::future<void>> ended;
    for (int rank = 0; rank < size; ++rank) {
      ended.push_back(std::async(std::launch::async, [&, rank] {
        Rank mine{rank, size, OpenGpu(rank), nullptr, nullptr};
        mine.stream = NewStream(mine.device);
        const Status status =
            NcclCommunicator::Connect(mine.device, id, size, rank, &mine.communicator);
        ASSERT_TRUE(status.ok()) << status.ToString();
        body(mine);
      }));
    }
    for (std::future<void>& end : ended) {
      ASSERT_EQ(end.wait_for(kTestTimeout), std::future_status::ready);
    }
  }
};

TEST_F(NcclTest, ReductionsAreExactForAllTypes) {
  constexpr size_t kCount = 1000003;
  OnAllRanks([&](Rank& mine) {
    for (const DType dtype : kDTypes) {
      const auto input = NewDeviceBuffer(mine.device, kCount * DTypeSize(dtype));
      const auto output = NewDeviceBuffer(mine.device, kCount * DTypeSize(dtype));
      Upload(Tensor(dtype, kCount, [&](size_t i) { return RankValue(mine.rank, i); }), *input,
             mine.stream.get());
      for (const NcclOperation operation : {NcclOperation::kSum, NcclOperation::kProduct,
                                            NcclOperation::kMin, NcclOperation::kMax}) {
        // Exact as int, too.
        if (operation == NcclOperation::kProduct && (IsFloating(dtype) || mine.size > 4)) continue;
        const std::vector<uint8_t> expected = Tensor(dtype, kCount, [&](size_t i) {
          int result = RankValue(0, i);
          for (int rank = 1; rank < mine.size; ++rank) {
            const int value = RankValue(rank, i);
            if (operation == NcclOperation::kSum) result += value;
            if (operation == NcclOperation::kProduct) result *= value;
            if (operation == NcclOperation::kMin) result = std::min(result, value);
            if (operation == NcclOperation::kMax) result = std::max(result, value);
          }
          return result;
        });
        const std::vector<uint8_t> poison(expected.size(), 0xAB);
        Upload(poison, *output, mine.stream.get());
        Status status = mine.communicator->AllReduce(
            {{{input->pointer(), output->pointer(), kCount, dtype}, operation}},
            mine.stream->handle());
        ASSERT_TRUE(status.ok()) << status.ToString();
        EXPECT_EQ(Download(*output, mine.stream.get()), expected) << DTypeName(dtype);

        for (int root = 0; root < mine.size; ++root) {
          Upload(poison, *output, mine.stream.get());
          status = mine.communicator->Reduce(input->pointer(), output->pointer(), kCount, dtype,
                                             operation, root, mine.stream->handle());
          ASSERT_TRUE(status.ok()) << status.ToString();
          if (mine.rank == root) {
            EXPECT_EQ(Download(*output, mine.stream.get()), expected) << DTypeName(dtype);
          }
        }
      }
    }
    EXPECT_TRUE(mine.stream->Synchronize().ok());
    EXPECT_TRUE(mine.communicator->AsynchronousError().ok());
    EXPECT_TRUE(mine.communicator->Finish().ok());
  });
}

TEST_F(NcclTest, BroadcastsAreExactForAllTypesAndRoots) {
  constexpr size_t kCount = 300007;
  OnAllRanks([&](Rank& mine) {
    for (const DType dtype : kDTypes) {
      const auto input = NewDeviceBuffer(mine.device, kCount * DTypeSize(dtype));
      const auto output = NewDeviceBuffer(mine.device, kCount * DTypeSize(dtype));
      Upload(Tensor(dtype, kCount, [&](size_t i) { return RankValue(mine.rank, i); }), *input,
             mine.stream.get());
      for (int root = 0; root < mine.size; ++root) {
        Upload(std::vector<uint8_t>(output->bytes(), 0xAB), *output, mine.stream.get());
        const Status status = mine.communicator->Broadcast(
            input->pointer(), output->pointer(), kCount, dtype, root, mine.stream->handle());
        ASSERT_TRUE(status.ok()) << status.ToString();
        EXPECT_EQ(Download(*output, mine.stream.get()),
                  Tensor(dtype, kCount, [&](size_t i) { return RankValue(root, i); }))
            << DTypeName(dtype);
      }
    }
    EXPECT_TRUE(mine.communicator->Finish().ok());
  });
}

TEST_F(NcclTest, SumsThatAreLaunchedTogetherAreExact) {
  OnAllRanks([&](Rank& mine) {
    std::vector<std::unique_ptr<DeviceBuffer>> buffers;
    std::vector<std::vector<uint8_t>> expected;
    std::vector<Reduction> reductions;
    for (size_t i = 0; i < 40; ++i) {
      Reduction& each = reductions.emplace_back();
      each.span.dtype = kDTypes[i % std::size(kDTypes)];
      each.span.count = 1 + i * i * 997;
      each.operation = i % 3 == 0 ? NcclOperation::kMax : NcclOperation::kSum;
      const bool is_sum = each.operation == NcclOperation::kSum;
      const size_t bytes = each.span.bytes();
      buffers.push_back(NewDeviceBuffer(mine.device, bytes));
      each.span.from = each.span.to = buffers.back()->pointer();
      Upload(Tensor(each.span.dtype, each.span.count,
                    [&](size_t j) { return RankValue(mine.rank, i + j); }),
             *buffers.back(), mine.stream.get());
      expected.push_back(Tensor(each.span.dtype, each.span.count, [&](size_t j) {
        int result = RankValue(0, i + j);
        for (int rank = 1; rank < mine.size; ++rank) {
          const int value = RankValue(rank, i + j);
          result = is_sum ? result + value : std::max(result, value);
        }
        return result;
      }));
    }
    const Status status = mine.communicator->AllReduce(reductions, mine.stream->handle());
    ASSERT_TRUE(status.ok()) << status.ToString();
    for (size_t i = 0; i < buffers.size(); ++i)
      EXPECT_EQ(Download(*buffers[i], mine.stream.get()), expected[i]) << i;
    EXPECT_TRUE(mine.communicator->Finish().ok());
  });
}

TEST_F(NcclTest, ErrorsHaveItsOwnWords) {
  OnAllRanks([&](Rank& mine) {
    const auto buffer = NewDeviceBuffer(mine.device, 64);
    const Status status = mine.communicator->Broadcast(
        buffer->pointer(), buffer->pointer(), 4, DType::kFloat32, mine.size, mine.stream->handle());
    EXPECT_EQ(status.code(), StatusCode::kInternal);
    EXPECT_EQ(status.message().rfind("ncclBroadcast: invalid argument", 0), 0u) << status.message();
    std::printf("%s\n", status.message().c_str());
    EXPECT_TRUE(mine.communicator->Finish().ok());
  });
}

}  // namespace
}  // namespace byteps

#include "cc/server/block_sum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>
#include <vector>

namespace byteps {
namespace {

constexpr uint64_t kFloatsPerBlock = kScratchBytes / sizeof(float);

class BlockSumTest : public ::testing::Test {
 protected:
  std::shared_ptr<BlockSum> NewSum(int32_t contributions, uint64_t elements, double divisor = 1,
                                   DType dtype = DType::kFloat32,
                                   ExchangeKind kind = ExchangeKind::kSum) {
    BlockSum::Options options;
    options.dtype = dtype;
    options.kind = kind;
    options.divisor = divisor;
    options.num_contributions = contributions;
    options.element_count = elements;
    options.scratch = std::make_shared<ScratchPool>();
    options.result = NewBuffer(elements * DTypeSize(dtype));
    options.accumulator = AccumulatorDType(dtype) == dtype
                              ? options.result
                              : NewBuffer(elements * DTypeSize(AccumulatorDType(dtype)));
    return std::make_shared<BlockSum>(std::move(options));
  }

  std::shared_ptr<Buffer> NewBuffer(uint64_t bytes) {
    std::unique_ptr<Buffer> buffer;
    EXPECT_TRUE(Buffer::New(bytes, allocated_, &buffer).ok());
    return buffer;
  }

  // Feeds `bytes` more of a contribution, at most `piece` at a time.
  static void Feed(BlockSink& sink, const void* data, size_t bytes, size_t piece) {
    const auto* next = static_cast<const uint8_t*>(data);
    while (bytes > 0) {
      const PayloadSink::Span span = sink.Prepare(bytes);
      ASSERT_GT(span.bytes, 0u);
      const size_t step = std::min({span.bytes, piece, bytes});
      std::memcpy(span.data, next, step);
      sink.Commit(step);
      next += step;
      bytes -= step;
    }
  }

  static std::vector<float> Ramp(uint64_t count, float start) {
    std::vector<float> values(count);
    for (uint64_t i = 0; i < count; ++i) values[i] = start + static_cast<float>(i % 1000);
    return values;
  }

  static float FloatAt(const BlockSum& sum, uint64_t index) {
    float value;
    std::memcpy(&value, sum.result()->data() + index * sizeof(float), sizeof(value));
    return value;
  }

  AllocatedBytes allocated_ = std::make_shared<std::atomic<uint64_t>>(0);
};

TEST_F(BlockSumTest, SumsAtBlockBoundaries) {
  for (const uint64_t elements : {uint64_t{1}, kFloatsPerBlock - 1, kFloatsPerBlock,
                                  kFloatsPerBlock + 1, 3 * kFloatsPerBlock + 7}) {
    const auto sum = NewSum(2, elements, /*divisor=*/2);
    for (const float start : {1.0f, 10.0f}) {
      BlockSink sink(sum);
      const std::vector<float> values = Ramp(elements, start);
      Feed(sink, values.data(), elements * sizeof(float), /*piece=*/50001);
    }
    for (uint64_t i = 0; i < elements; ++i)
      ASSERT_EQ(FloatAt(*sum, i), (11.0f + 2 * static_cast<float>(i % 1000)) / 2) << i;
  }
}

TEST_F(BlockSumTest, TheFirstContributionIsReceivedIntoTheSum) {
  const auto sum = NewSum(2, 2 * kFloatsPerBlock);
  BlockSink first(sum), second(sum);
  const PayloadSink::Span direct = first.Prepare(2 * kScratchBytes);
  EXPECT_EQ(direct.data, sum->result()->data());
  EXPECT_EQ(direct.bytes, kScratchBytes);
  // Busy: the second one gets memory of its own, and the same again until it has filled it.
  const PayloadSink::Span scratch = second.Prepare(2 * kScratchBytes);
  EXPECT_NE(scratch.data, direct.data);
  EXPECT_EQ(second.Prepare(2 * kScratchBytes).data, scratch.data);
}

TEST_F(BlockSumTest, NobodyWaitsForABlockThatIsStillBeingReceived) {
  const uint64_t elements = 2 * kFloatsPerBlock;
  const auto sum = NewSum(3, elements);
  const std::vector<float> values = Ramp(elements, 1);
  BlockSink slow(sum), second(sum), third(sum);
  Feed(slow, values.data(), 4, 4);  // holds block 0
  Feed(second, values.data(), elements * sizeof(float), kScratchBytes);
  Feed(third, values.data(), elements * sizeof(float), kScratchBytes);
  Feed(slow, reinterpret_cast<const uint8_t*>(values.data()) + 4, elements * sizeof(float) - 4,
       12345);
  for (uint64_t i = 0; i < elements; ++i) ASSERT_EQ(FloatAt(*sum, i), 3 * values[i]) << i;
}

TEST_F(BlockSumTest, WholeBlocksThatAreInMemoryAreAddedWithoutACopy) {
  const uint64_t elements = 3 * kFloatsPerBlock + 7;
  const auto sum = NewSum(3, elements);
  const std::vector<float> values = Ramp(elements, 1);
  const auto* bytes = reinterpret_cast<const uint8_t*>(values.data());
  const size_t size = elements * sizeof(float);
  BlockSink whole(sum);
  EXPECT_EQ(whole.Take(bytes, size, size), 0u);
  // In the middle of a block only what is whole needs no copy.
  BlockSink pieces(sum);
  EXPECT_EQ(pieces.Take(bytes, 4000, size), 4000u);
  EXPECT_EQ(pieces.Take(bytes + 4000, size - 4000, size - 4000), kScratchBytes - 4000);
  // A block that another one is filling.
  BlockSink slow(sum), last(sum);
  const size_t half = kScratchBytes / 2;
  EXPECT_EQ(slow.Take(bytes, half, size), half);
  for (uint64_t i = kFloatsPerBlock; i < elements; ++i)
    ASSERT_EQ(FloatAt(*sum, i), 2 * values[i]) << i;
  slow.Take(bytes + half, size - half, size - half);
  for (uint64_t i = 0; i < elements; ++i) ASSERT_EQ(FloatAt(*sum, i), 3 * values[i]) << i;
}

TEST_F(BlockSumTest, ConvertsSixteenBitTypesBlockByBlock) {
  const uint64_t elements = kScratchBytes / 2 + 3;
  const auto sum = NewSum(2, elements, /*divisor=*/2, DType::kBFloat16);
  const std::vector<uint16_t> ones(elements, 0x3f80), threes(elements, 0x4040);
  for (const auto* values : {&ones, &threes}) {
    BlockSink sink(sum);
    Feed(sink, values->data(), elements * 2, 4097);
  }
  for (uint64_t i = 0; i < elements; ++i) {
    uint16_t value;
    std::memcpy(&value, sum->result()->data() + 2 * i, 2);
    ASSERT_EQ(value, 0x4000) << i;  // 2
  }
}

TEST_F(BlockSumTest, ASingleContributionIsDividedToo) {
  const auto sum = NewSum(1, 5, /*divisor=*/2);
  BlockSink sink(sum);
  const std::vector<float> values = Ramp(5, 2);
  Feed(sink, values.data(), 20, 20);
  for (uint64_t i = 0; i < 5; ++i) EXPECT_EQ(FloatAt(*sum, i), values[i] / 2);
}

TEST_F(BlockSumTest, ThreadsMeetInEveryBlock) {
  constexpr int32_t kThreads = 4;
  const uint64_t elements = 20 * kFloatsPerBlock + 11;
  for (int round = 0; round < 5; ++round) {
    const auto sum = NewSum(kThreads, elements);
    std::vector<std::thread> threads;
    for (int32_t t = 0; t < kThreads; ++t) {
      threads.emplace_back([&, t] {
        const std::vector<float> values = Ramp(elements, static_cast<float>(t));
        BlockSink sink(sum);
        Feed(sink, values.data(), elements * sizeof(float), 40000 + 1000 * t);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (uint64_t i = 0; i < elements; ++i)
      ASSERT_EQ(FloatAt(*sum, i), 6 + 4 * static_cast<float>(i % 1000)) << i;
  }
}

TEST_F(BlockSumTest, ALateContributionOutlivesItsRound) {
  auto sum = NewSum(2, kFloatsPerBlock);
  auto sink = std::make_unique<BlockSink>(sum);
  const float value = 1;
  Feed(*sink, &value, sizeof(value), 4);
  sum.reset();  // the round has failed
  Feed(*sink, &value, sizeof(value), 4);
  sink.reset();
  EXPECT_EQ(allocated_->load(), 0u);
}

}  // namespace
}  // namespace byteps

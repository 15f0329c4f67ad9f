// What servers make of rows of a table that come with their indices.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "cc/base/coded_rows.h"
#include "cc/server/row_slots.h"
#include "cc/server/testing/fake_workers.h"

namespace byteps {
namespace {

using Ints = std::vector<int32_t>;
using Floats = std::vector<float>;

template <typename T>
std::string Rows(const std::vector<int64_t>& indices, const std::vector<T>& values) {
  const std::vector<uint8_t> head = EncodeRowIndices(indices);
  return std::string(head.begin(), head.end()) + BytesOf(values);
}

TableEntry RowEntry(DType dtype = DType::kInt32, int64_t width = 2, bool average = false) {
  TensorDescription tensor = Tensor("t", dtype, {-1, width}, ExchangeKind::kRowSum);
  tensor.average = average;
  return Entry(tensor);
}

FrameHeader HeaderOf(const TableEntry& entry, int32_t worker, uint64_t round,
                     const std::string& payload, uint64_t rows) {
  FrameHeader header = FakeWorkers::Header(entry, worker, round, payload);
  header.row_count = rows;
  header.element_count = rows * entry.tensor.ElementCount();
  return header;
}

template <typename T>
void Push(FakeWorkers* workers, const TableEntry& entry, int32_t worker, uint64_t round,
          const std::vector<int64_t>& indices, const std::vector<T>& values) {
  const std::string payload = Rows(indices, values);
  FakePush push(&workers->service, workers->connections[worker].get(),
                HeaderOf(entry, worker, round, payload, indices.size()), payload);
  const Status status = push.DeliverAll();
  ASSERT_TRUE(status.ok()) << status.ToString();
}

TEST(RowSumTest, AllGetTheUnionInAscendingOrder) {
  FakeWorkers workers(3);
  const TableEntry entry = RowEntry();
  workers.Add(entry);
  for (int round = 0; round < 3; ++round) {
    Push<int32_t>(&workers, entry, 2, round, {1, 500}, {1, 2, 3, 4 + round});
    EXPECT_TRUE(workers.TakeReplies(2).empty());
    Push<int32_t>(&workers, entry, 0, round, {500, int64_t{1} << 40}, {10, 20, 30, 40});
    Push<int32_t>(&workers, entry, 1, round, {}, {});
    const std::string expected =
        Rows<int32_t>({1, 500, int64_t{1} << 40}, {1, 2, 13, 24 + round, 30, 40});
    for (int worker = 0; worker < 3; ++worker) {
      const SentFrame reply = workers.TakeReply(worker);
      EXPECT_EQ(reply.payload, expected);
      EXPECT_EQ(reply.header.element_count, 6u);
    }
  }
}

// Each push gets one reply, and the same memory goes to all: it is encoded once, however many there
// are (protocol rule 30).
TEST(RowSumTest, TheReplyIsMadeOnce) {
  for (const int32_t count : {2, 64, 1024}) {
    FakeWorkers workers(count);
    const TableEntry entry = RowEntry();
    workers.Add(entry);
    for (int32_t worker = 0; worker < count; ++worker)
      Push<int32_t>(&workers, entry, worker, 0, {7, 8 + worker % 2}, {1, 2, 3, 4});
    const SentFrame first = workers.TakeReply(0);
    const Ints sums = {count, 2 * count, 3 * count / 2, 2 * count, 3 * count / 2, 2 * count};
    EXPECT_EQ(first.payload, Rows<int32_t>({7, 8, 9}, sums));
    for (int32_t worker = 1; worker < count; ++worker)
      EXPECT_EQ(workers.TakeReply(worker).original.payload, first.original.payload);
  }
}

TEST(RowSumTest, NobodyHasRows) {
  FakeWorkers workers(2);
  const TableEntry entry = RowEntry();
  workers.Add(entry);
  for (int worker = 0; worker < 2; ++worker) Push<int32_t>(&workers, entry, worker, 0, {}, {});
  for (int worker = 0; worker < 2; ++worker)
    EXPECT_EQ(workers.TakeReply(worker).payload, std::string(1, '\0'));
}

// 1e8 + 1 - 1e8 depends on the order in float32.
TEST(RowSumTest, RowsAreAddedInRankOrder) {
  std::vector<int> order = {0, 1, 2};
  do {
    FakeWorkers workers(3);
    const TableEntry entry = RowEntry(DType::kFloat32, 1);
    workers.Add(entry);
    const Floats values = {1e8f, 1.0f, -1e8f};
    for (const int worker : order) Push<float>(&workers, entry, worker, 0, {3}, {values[worker]});
    const float expected = (1e8f + 1.0f) - 1e8f;
    EXPECT_EQ(workers.TakeReply(1).payload, Rows<float>({3}, {expected}));
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(RowSumTest, AveragesDivideByAllWorkers) {
  FakeWorkers workers(4);
  const TableEntry entry = RowEntry(DType::kFloat32, 1, true);
  workers.Add(entry);
  Push<float>(&workers, entry, 0, 0, {1, 2}, {4.0f, 8.0f});
  Push<float>(&workers, entry, 3, 0, {2}, {4.0f});
  for (const int worker : {1, 2}) Push<float>(&workers, entry, worker, 0, {}, {});
  EXPECT_EQ(workers.TakeReply(0).payload, Rows<float>({1, 2}, {1.0f, 3.0f}));
}

// 2048 + 1 is not a float16: what is added up in float16 would stay at 2048.
TEST(RowSumTest, ShortFloatsAreAddedInFloat32) {
  FakeWorkers workers(3);
  const TableEntry entry = RowEntry(DType::kFloat16, 1);
  workers.Add(entry);
  Push<uint16_t>(&workers, entry, 0, 0, {9}, {0x6800});  // 2048
  Push<uint16_t>(&workers, entry, 1, 0, {9}, {0x3c00});  // 1
  Push<uint16_t>(&workers, entry, 2, 0, {9, 10}, {0x3c00, 0x3c00});
  EXPECT_EQ(workers.TakeReply(0).payload, Rows<uint16_t>({9, 10}, {0x6801, 0x3c00}));
}

// A worker's library makes them, but the bytes may be anybody's.
TEST(RowSumTest, DamagedIndicesEndTheRoundForAll) {
  FakeWorkers workers(2);
  const TableEntry entry = RowEntry(DType::kInt32, 1);
  workers.Add(entry);
  Push<int32_t>(&workers, entry, 0, 0, {1, 2}, {1, 2});
  const std::string twice = std::string("\2\5\0", 3) + BytesOf<int32_t>({1, 2});
  FakePush push(&workers.service, workers.connections[1].get(), HeaderOf(entry, 1, 0, twice, 2),
                twice);
  ASSERT_TRUE(push.DeliverAll().ok());
  for (int worker = 0; worker < 2; ++worker) {
    const SentFrame reply = workers.TakeReply(worker);
    EXPECT_EQ(reply.header.status, StatusCode::kInvalidArgument);
    EXPECT_NE(reply.payload.find("worker 1: the index of its row 1 of 2 is not above"),
              std::string::npos)
        << reply.payload;
  }
  Push<int32_t>(&workers, entry, 0, 1, {1}, {1});
  Push<int32_t>(&workers, entry, 1, 1, {1}, {2});
  EXPECT_EQ(workers.TakeReply(0).payload, Rows<int32_t>({1}, {3}));
}

TEST(RowSumTest, RefusesLengthsThatCannotBe) {
  FakeWorkers workers(2);
  const TableEntry entry = RowEntry(DType::kInt32, 2);
  workers.Add(entry);
  const std::string payload = Rows<int32_t>({1}, {1, 2});
  for (const uint64_t rows : {uint64_t{0}, uint64_t{2}, uint64_t{1} << 62}) {
    FakePush push(&workers.service, workers.connections[0].get(),
                  HeaderOf(entry, 0, 0, payload, rows), payload);
    EXPECT_FALSE(push.Begin().ok()) << rows;
  }
}

// After a lost server: one worker has the result, the other one gets it from there.
TEST(RowSumTest, ALostServersLastRoundComesFromAWorker) {
  FakeWorkers workers(2);
  TableEntry entry = RowEntry(DType::kInt32, 1);
  entry.parts[0].server = 1;
  workers.Add(entry);
  entry.parts[0].server = 0;
  entry.parts[0].version = kTestPlacement + 1;
  ASSERT_TRUE(
      workers.service.MoveParts({1, kTestPlacement + 1, {entry}, {{entry.key, 0, 8, 1}}}).ok());
  Push<int32_t>(&workers, entry, 0, 7, {4}, {1});
  const std::string sum = Rows<int32_t>({4, 6}, {3, 5});
  FrameHeader result = HeaderOf(entry, 1, 7, sum, 2);
  result.row_count = 0;
  result.watermark = 8;
  FakePush push(&workers.service, workers.connections[1].get(), result, sum);
  ASSERT_TRUE(push.DeliverAll().ok());
  EXPECT_EQ(workers.TakeReply(0).payload, sum);
}

// (protocol rule 30)
TEST(RowSlotsTest, ARowCostsTheSameWithAnyNumberOfWorkers) {
  for (const int workers : {64, 1024}) {
    RowSlots slots;
    uint64_t rows = 0;
    for (int worker = 0; worker < workers; ++worker) {
      for (int64_t row = 0; row < 100; ++row, ++rows) slots.SlotOf(row * (1 + worker % 7) * 1024);
    }
    EXPECT_LT(slots.probes(), 8 * rows) << workers;
  }
}

TEST(RowSlotsTest, NumbersIndicesInTheOrderInWhichTheyCome) {
  RowSlots slots;
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(slots.SlotOf(i * i * 7919), i);
  for (int64_t i = 0; i < 1000; ++i) EXPECT_EQ(slots.SlotOf(i * i * 7919), i);
  EXPECT_EQ(slots.SlotOf(std::numeric_limits<int64_t>::max()), 1000u);
  slots.Clear();
  EXPECT_EQ(slots.SlotOf(5), 0u);
}

}  // namespace
}  // namespace byteps

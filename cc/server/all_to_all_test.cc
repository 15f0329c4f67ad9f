// What servers make of the rows that workers split among each other.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cc/server/testing/fake_workers.h"

namespace byteps {
namespace {

std::string Contribution(const std::vector<int64_t>& splits, const std::vector<int32_t>& values) {
  return BytesOf(splits) + BytesOf(values);
}

TableEntry SplitEntry(int64_t row_elements = 2) {
  return Entry(Tensor("t", DType::kInt32, {-1, row_elements}, ExchangeKind::kAllToAll));
}

TEST(AllToAllTest, EachWorkerGetsItsRowsInRankOrder) {
  FakeWorkers workers(3);
  const TableEntry entry = SplitEntry();
  workers.Add(entry);
  for (int round = 0; round < 2; ++round) {
    workers.Push(entry, 2, round, Contribution({1, 1, 1}, {30, 30, 31, 31, 32, 32 + round}));
    workers.Push(entry, 0, round, Contribution({0, 2, 0}, {11, 11, 12, 12}));
    EXPECT_TRUE(workers.TakeReplies(0).empty());
    workers.Push(entry, 1, round, Contribution({0, 0, 0}, {}));
    EXPECT_EQ(workers.TakeReply(0).payload, Contribution({0, 0, 1}, {30, 30}));
    EXPECT_EQ(workers.TakeReply(1).payload, Contribution({2, 0, 1}, {11, 11, 12, 12, 31, 31}));
    const SentFrame last = workers.TakeReply(2);
    EXPECT_EQ(last.payload, Contribution({0, 0, 1}, {32, 32 + round}));
    EXPECT_EQ(last.header.element_count, 2u);
  }
}

// They are sent from where they were received; short ones are copied next to each other.
TEST(AllToAllTest, LongAndShortRowsComeTogether) {
  FakeWorkers workers(3);
  const TableEntry entry = SplitEntry(1);
  workers.Add(entry);
  const auto count_of = [](int from, int to) { return from == to ? 3 : 20000 * ((from + to) % 2); };
  std::vector<std::string> expected_rows(3);
  std::vector<std::vector<int64_t>> expected_counts(3);
  for (int from = 0; from < 3; ++from) {
    std::vector<int64_t> splits;
    std::vector<int32_t> values;
    for (int to = 0; to < 3; ++to) {
      splits.push_back(count_of(from, to));
      const std::vector<int32_t> rows(splits.back(), 10 * from + to);
      values.insert(values.end(), rows.begin(), rows.end());
      expected_counts[to].push_back(splits.back());
      expected_rows[to] += BytesOf(rows);
    }
    workers.Push(entry, from, 0, Contribution(splits, values));
  }
  for (int to = 0; to < 3; ++to)
    EXPECT_EQ(workers.TakeReply(to).payload, BytesOf(expected_counts[to]) + expected_rows[to]);
}

TEST(AllToAllTest, CountsRowsWithoutElements) {
  FakeWorkers workers(2);
  const TableEntry entry = SplitEntry(0);
  workers.Add(entry);
  for (int worker = 0; worker < 2; ++worker) {
    const std::string splits = BytesOf<int64_t>({3, worker});
    FrameHeader header = FakeWorkers::Header(entry, worker, 0, splits, 0, splits.size());
    header.row_count = 3 + worker;
    Connection* const from = workers.connections[worker].get();
    ASSERT_TRUE(FakePush(&workers.service, from, header, splits).DeliverAll().ok());
  }
  EXPECT_EQ(workers.TakeReply(0).payload, BytesOf<int64_t>({3, 3}));
  EXPECT_EQ(workers.TakeReply(1).payload, BytesOf<int64_t>({0, 1}));
}

// A worker's library checks them, but the bytes may be anybody's.
TEST(AllToAllTest, WrongSplitsEndTheRoundForAll) {
  FakeWorkers workers(2);
  const TableEntry entry = SplitEntry(1);
  workers.Add(entry);
  const std::vector<std::vector<int64_t>> wrong = {{2, -1}, {-1, 2},        {1, 1},
                                                   {0, 0},  {INT64_MAX, 1}, {INT64_MIN, INT64_MIN}};
  uint64_t round = 0;
  for (const std::vector<int64_t>& splits : wrong) {
    workers.Push(entry, 0, round, Contribution({1, 1}, {1, 2}));
    workers.Push(entry, 1, round, Contribution(splits, {7}));
    for (int worker = 0; worker < 2; ++worker) {
      const SentFrame reply = workers.TakeReply(worker);
      EXPECT_EQ(reply.header.status, StatusCode::kInvalidArgument) << round;
      EXPECT_NE(reply.payload.find("worker 1: its splits are not numbers of rows that add up"),
                std::string::npos)
          << reply.payload;
    }
    ++round;
  }
  workers.Push(entry, 0, round, Contribution({1, 1}, {1, 2}));
  workers.Push(entry, 1, round, Contribution({1, 0}, {7}));
  EXPECT_EQ(workers.TakeReply(0).payload, Contribution({1, 1}, {1, 7}));
  EXPECT_EQ(workers.TakeReply(1).payload, Contribution({1, 0}, {2}));
}

// Nobody has the rows of another worker: who lacks a round when its server is lost hears so.
TEST(AllToAllTest, ALostServersLastRoundCannotBeHad) {
  FakeWorkers workers(2);
  TableEntry entry = SplitEntry(1);
  entry.parts[0].server = 1;
  workers.Add(entry);
  entry.parts[0] = {1, 0, kTestPlacement + 1};
  ASSERT_TRUE(
      workers.service.MoveParts({1, kTestPlacement + 1, {entry}, {{entry.key, 0, 8, -1}}}).ok());
  workers.Push(entry, 0, 7, Contribution({1, 0}, {1}));
  EXPECT_NE(workers.TakeReply(0).header.status, StatusCode::kOk);
  workers.Push(entry, 0, 8, Contribution({1, 1}, {1, 2}));
  workers.Push(entry, 1, 8, Contribution({1, 0}, {7}));
  EXPECT_EQ(workers.TakeReply(0).payload, Contribution({1, 1}, {1, 7}));
}

}  // namespace
}  // namespace byteps

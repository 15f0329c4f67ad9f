// Rows of a table on a server, and their optimizers.
#include "cc/server/table_rows.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "cc/base/testing/table_requests.h"
#include "cc/server/free_memory.h"

namespace byteps {
namespace {

class Table {
 public:
  explicit Table(const TableSpec& spec, bool goes_back = false) {
    const Status status = TableRows::New(spec, goes_back, allocated, &rows);
    EXPECT_TRUE(status.ok()) << status.ToString();
  }

  std::vector<float> Read(const std::vector<int64_t>& indices, uint32_t slot = 0) {
    const std::string bytes = RequestBytes(TableRequest::Kind::kRead, 0, indices, {}, 1, slot);
    const TableRequest request = Decoded(bytes);
    std::vector<float> found(rows->ReadBytes(request) / sizeof(float));
    rows->Read(request, reinterpret_cast<uint8_t*>(found.data()));
    return found;
  }

  Status Update(const std::vector<std::string>& requests) {
    std::vector<TableRequest> decoded;
    for (const std::string& bytes : requests) decoded.push_back(Decoded(bytes));
    return rows->Update(decoded);
  }

  static TableRequest Decoded(const std::string& bytes) {
    TableRequest request;
    EXPECT_TRUE(
        DecodeTableRequest(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), &request)
            .ok());
    return request;
  }

  const AllocatedBytes allocated = std::make_shared<std::atomic<uint64_t>>(0);
  std::unique_ptr<TableRows> rows;
};

std::string Gradients(const std::vector<int64_t>& indices, const std::vector<float>& values,
                      double rate) {
  return RequestBytes(TableRequest::Kind::kUpdate, 0, indices, values, rate);
}

TEST(TableRowsTest, SgdUpdatesEachRowOnceByTheSumOfTheWorkers) {
  Table table(SomeTable());
  ASSERT_TRUE(
      table.Update({Gradients({1, 4}, {1, 2, 3, 4}, 0.5), Gradients({4}, {10, 20}, 0.5)}).ok());
  EXPECT_EQ(table.Read({0, 1, 4}), (std::vector<float>{1, 1, 0.5, 0, -5.5, -11}));
}

TEST(TableRowsTest, AdagradKeepsAnAccumulatorForEachNumber) {
  TableSpec spec = SomeTable();
  spec.rule.kind = RowRule::Kind::kAdagrad;
  spec.rule.first_state = 7;
  Table table(spec);
  ASSERT_TRUE(table.Update({Gradients({3}, {3, 0}, 2)}).ok());
  EXPECT_EQ(table.Read({3}), (std::vector<float>{1 - 2 * 3 / 4.0f, 1}));
  EXPECT_EQ(table.Read({3, 2}, 1), (std::vector<float>{16, 7, 7, 7}));
}

TEST(TableRowsTest, RowWiseAdagradKeepsOneForARow) {
  TableSpec spec = SomeTable();
  spec.rule.kind = RowRule::Kind::kRowWiseAdagrad;
  Table table(spec);
  ASSERT_TRUE(table.Update({Gradients({3}, {1, 7}, 5)}).ok());
  EXPECT_EQ(table.Read({3}), (std::vector<float>{0, -6}));
  EXPECT_EQ(table.Read({3}, 1), (std::vector<float>{25}));
}

TEST(TableRowsTest, EachStateIsASlotOfItsOwn) {
  TableSpec spec = SomeTable();
  spec.rule.kind = RowRule::Kind::kFtrl;
  spec.rule.first_state = 4;
  spec.rule.numbers = {1};  // so that nothing is rounded
  Table table(spec);
  EXPECT_EQ(table.Read({3}, 1), (std::vector<float>{4, 4}));
  EXPECT_EQ(table.Read({3}, 2), (std::vector<float>{0, 0}));
  table.rows->Write(Table::Decoded(RequestBytes(TableRequest::Kind::kWrite, 0, {3}, {2, 1}, 1, 2)));
  ASSERT_TRUE(table.Update({Gradients({3}, {2, 0}, 0.5)}).ok());
  EXPECT_EQ(table.Read({3}, 1), (std::vector<float>{8, 4}));
  EXPECT_EQ(table.Read({3}, 2), (std::vector<float>{2 + 2 - 4 / 0.5f, 1}));
  EXPECT_EQ(table.Read({3}), (std::vector<float>{4 * 0.5f / 8, -1 * 0.5f / 4}));
}

TEST(TableRowsTest, ALearningRateThatTheRuleCannotHaveChangesNothing) {
  TableSpec spec = SomeTable();
  spec.rule.kind = RowRule::Kind::kFtrl;
  Table table(spec);
  const Status status = table.Update({Gradients({3}, {1, 1}, 0)});
  EXPECT_NE(status.message().find("the table \"users\": Ftrl divides by the learning rate"),
            std::string::npos)
      << status.message();
  EXPECT_EQ(table.Read({3}), (std::vector<float>{1, 1}));
}

TEST(TableRowsTest, AGradientThatIsNoNumberChangesNothing) {
  Table table(SomeTable());
  const float huge = std::numeric_limits<float>::max();
  const Status status =
      table.Update({Gradients({1, 2}, {1, 1, huge, 0}, 1), Gradients({2}, {huge, 0}, 1)});
  EXPECT_NE(status.message().find("row 7 of the table \"users\" has a gradient that is NaN or"),
            std::string::npos)
      << status.message();
  EXPECT_EQ(table.Read({1, 2}), (std::vector<float>{1, 1, 1, 1}));
}

TEST(TableRowsTest, ValuesAreWhatIsWritten) {
  TableSpec spec = SomeTable();
  spec.rule.kind = RowRule::Kind::kRowWiseAdagrad;
  Table table(spec);
  const std::string rows = RequestBytes(TableRequest::Kind::kWrite, 0, {2, 6}, {1, 2, 3, 4});
  const std::string states = RequestBytes(TableRequest::Kind::kWrite, 0, {6}, {9}, 1, 1);
  table.rows->Write(Table::Decoded(rows));
  table.rows->Write(Table::Decoded(states));
  EXPECT_EQ(table.Read({6, 2, 0}), (std::vector<float>{3, 4, 1, 2, 1, 1}));
  EXPECT_EQ(table.Read({6, 2}, 1), (std::vector<float>{9, 0}));
}

TEST(TableRowsTest, MemoryIsThatOfRowsAndStates) {
  TableSpec spec = SomeTable();
  spec.rule.kind = RowRule::Kind::kAmsgrad;
  const Table table(spec);
  EXPECT_EQ(*table.allocated, 8u * (2 + 3 * 2) * sizeof(float));
}

// That no server has the memory for.
TableSpec TooLargeTable() {
  TableSpec spec = SomeTable();
  spec.rows = uint64_t{1} << 46;
  return spec;
}

// What is said of a table that is too large. Nothing of it may be there.
Status Refused(const TableSpec& spec, bool goes_back) {
  const AllocatedBytes allocated = std::make_shared<std::atomic<uint64_t>>(0);
  std::unique_ptr<TableRows> rows;
  const Status status = TableRows::New(spec, goes_back, allocated, &rows);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(*allocated, 0u);
  return status;
}

TEST(TableRowsTest, OneThatTheServerHasNoMemoryForIsRefusedBeforeItIsThere) {
  TableSpec spec = TooLargeTable();
  const Status status = Refused(spec, false);
  EXPECT_NE(status.message().find("the table \"users\" needs 562949953421312 bytes"),
            std::string::npos)
      << status.message();
  spec.rule.kind = RowRule::Kind::kAdam;  // whose states count, too
  EXPECT_NE(Refused(spec, false).message().find("needs 1688849860263936 bytes"), std::string::npos);
}

// Bytes that all tables of this process may yet take, by what is said of one that is too large.
uint64_t PromisedBytes() {
  const std::string message = Refused(TooLargeTable(), false).message();
  const std::string before = "may yet need ";
  const size_t at = message.find(before);
  EXPECT_NE(at, std::string::npos) << message;
  return std::stoull(message.substr(at + before.size()));
}

constexpr uint64_t kRowBytes = 2 * sizeof(float);
// Beside a row that is kept as it was at a point.
constexpr uint64_t kBytesBeside = 64;

// Protocol rule 40.
TEST(TableRowsTest, RowsOfTheLastTwoCommitsCountAsMemory) {
  const TableSpec spec = TooLargeTable();
  const Status status = Refused(spec, true);
  const uint64_t needed = spec.rows * (kRowBytes + 2 * (kRowBytes + kBytesBeside));
  EXPECT_NE(status.message().find("needs " + std::to_string(needed) + " bytes on this server (" +
                                  spec.ToString() +
                                  ", and rows as they were at the last two commits), which has "),
            std::string::npos)
      << status.message();
}

// Protocol rule 40.
TEST(TableRowsTest, ATableThatFitsOnlyWithoutCommitsIsRefusedBeforeItGrows) {
  TableSpec spec = SomeTable();
  spec.width = uint64_t{1} << 20;
  spec.rows = FreeMemory() / 2 / spec.RowBytes();
  const AllocatedBytes allocated = std::make_shared<std::atomic<uint64_t>>(0);
  std::unique_ptr<TableRows> rows;
  EXPECT_TRUE(TableRows::New(spec, false, allocated, &rows).ok());
  rows = nullptr;
  EXPECT_EQ(TableRows::New(spec, true, allocated, &rows).code(), StatusCode::kResourceExhausted);
}

TEST(TableRowsTest, WhatATableMayYetNeedFallsAsItGrows) {
  const uint64_t before = PromisedBytes();
  {
    Table table(SomeTable());
    EXPECT_EQ(PromisedBytes(), before + 8 * kRowBytes);
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(table.Update({Gradients({3}, {1, 1}, 1)}).ok());
    EXPECT_EQ(PromisedBytes(), before + 7 * kRowBytes);
    EXPECT_EQ(*table.allocated, 8 * kRowBytes);
  }
  EXPECT_EQ(PromisedBytes(), before);
}

// Protocol rule 40.
TEST(TableRowsTest, SoDoesWhatItMayNeedForRowsOfCommits) {
  const uint64_t before = PromisedBytes();
  Table table(SomeTable(), /*goes_back=*/true);
  const uint64_t most = 8 * kRowBytes + 16 * (kRowBytes + kBytesBeside);
  const auto expect = [&](uint64_t made, uint64_t kept) {
    EXPECT_EQ(PromisedBytes(), before + most - made - kept);
    EXPECT_EQ(*table.allocated, 8 * kRowBytes + kept);
  };
  const auto update = [&] { ASSERT_TRUE(table.Update({Gradients({3}, {1, 1}, 1)}).ok()); };
  expect(0, 0);
  table.rows->Mark({7, 1});
  update();
  expect(kRowBytes, kBytesBeside);  // the row was as it was made
  table.rows->Mark({7, 2});
  for (int i = 0; i < 2; ++i) update();
  expect(kRowBytes, kBytesBeside + kRowBytes + kBytesBeside);
  table.rows->Forget(2);
  expect(kRowBytes, kRowBytes + kBytesBeside);
  const AllocatedBytes other = std::make_shared<std::atomic<uint64_t>>(0);
  table.rows->CountAmong(other);
  EXPECT_EQ(*table.allocated, 0u);
  EXPECT_EQ(*other, 9 * kRowBytes + kBytesBeside);
  table.rows->CountAmong(table.allocated);
  ASSERT_TRUE(table.rows->GoBack({7, 2}));
  expect(kRowBytes, 0);
  table.rows = nullptr;
  EXPECT_EQ(PromisedBytes(), before);
  EXPECT_EQ(*table.allocated, 0u);
}

}  // namespace
}  // namespace byteps

// Rows go back to points that were marked (protocol rule 40).
#include "cc/server/state/row_history.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace byteps {
namespace {

// Rows of one byte; those that are not in the map are as they were made.
class Rows {
 public:
  void Set(int64_t index, uint8_t value) {
    const auto row = rows.find(index);
    history.Note(index, row == rows.end() ? nullptr : &row->second, 1);
    rows[index] = value;
  }
  bool GoBack(const TablePoint& point) {
    return history.GoBack(point, [this](int64_t index, const uint8_t* bytes) {
      if (bytes == nullptr)
        rows.erase(index);
      else
        rows[index] = *bytes;
    });
  }

  RowHistory history;
  std::map<int64_t, uint8_t> rows;
};

using Values = std::map<int64_t, uint8_t>;

TEST(RowHistoryTest, RowsGoBackToEachPoint) {
  Rows table;
  table.Set(1, 10);
  table.history.Mark({3, 2});
  table.Set(1, 11);
  table.Set(2, 20);
  table.Set(2, 21);
  table.history.Mark({3, 5});
  table.Set(1, 12);
  table.Set(3, 30);
  ASSERT_TRUE(table.GoBack({3, 5}));
  EXPECT_EQ(table.rows, (Values{{1, 11}, {2, 21}}));
  table.Set(2, 22);
  ASSERT_TRUE(table.GoBack({3, 5}));  // again
  EXPECT_EQ(table.rows, (Values{{1, 11}, {2, 21}}));
  table.Set(4, 40);
  ASSERT_TRUE(table.GoBack({3, 2}));
  EXPECT_EQ(table.rows, (Values{{1, 10}}));
  EXPECT_EQ(table.history.points(), (std::vector<TablePoint>{{3, 2}}));
}

TEST(RowHistoryTest, APointIsOneOfItsEpoch) {
  Rows table;
  table.history.Mark({3, 2});
  table.Set(1, 11);
  EXPECT_FALSE(table.GoBack({2, 2}));
  EXPECT_FALSE(table.GoBack({3, 3}));
  EXPECT_EQ(table.rows, (Values{{1, 11}}));
}

TEST(RowHistoryTest, TheNextEpochBeginsAtThePointOfTheLast) {
  Rows table;
  table.history.Mark({3, 2});
  table.history.Mark({4, 2});
  table.history.Mark({4, 2});
  table.Set(1, 11);
  EXPECT_EQ(table.history.points(), (std::vector<TablePoint>{{3, 2}, {4, 2}}));
  ASSERT_TRUE(table.GoBack({3, 2}));
  EXPECT_EQ(table.rows, Values());
}

TEST(RowHistoryTest, WhatNobodyGoesBackToIsForgotten) {
  Rows table;
  table.Set(1, 10);  // nothing is kept before there is a point
  for (const uint64_t number : {2, 5, 7}) {
    table.history.Mark({3, number});
    table.Set(1, static_cast<uint8_t>(number));
  }
  table.history.Forget(5);
  EXPECT_FALSE(table.GoBack({3, 2}));
  ASSERT_TRUE(table.GoBack({3, 5}));
  EXPECT_EQ(table.rows, (Values{{1, 2}}));
  table.history.Forget(6);
  EXPECT_TRUE(table.history.points().empty());
}

// Of rows that changed in each span: as large as it ever is.
TEST(RowHistoryTest, MemoryIsThatOfTheRowsOfTwoSpans) {
  constexpr int64_t kRows = 3;
  constexpr uint64_t kRowBytes = 40000;  // two need more than a piece
  RowHistory history;
  std::vector<uint8_t> row(kRowBytes);
  const auto change_all = [&] {
    ++row[kRowBytes - 1];
    for (int64_t index = 0; index < kRows; ++index) history.Note(index, row.data(), kRowBytes);
  };
  change_all();
  EXPECT_EQ(history.bytes(), 0u);
  for (const uint64_t number : {2, 5, 7}) {
    history.Mark({3, number});
    history.Forget(number == 7 ? 5 : 0);
    change_all();
    change_all();
  }
  EXPECT_EQ(history.bytes(), RowHistory::MostBytes(kRows, kRowBytes));
  std::map<int64_t, int> last_bytes;
  const auto restore = [&](int64_t index, const uint8_t* bytes) {
    last_bytes[index] = bytes[kRowBytes - 1];
  };
  ASSERT_TRUE(history.GoBack({3, 5}, restore));
  EXPECT_EQ(last_bytes, (std::map<int64_t, int>{{0, 4}, {1, 4}, {2, 4}}));
  EXPECT_EQ(history.bytes(), 0u);
}

}  // namespace
}  // namespace byteps

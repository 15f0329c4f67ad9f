#include "cc/tf/gathered_rows.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace byteps {
namespace {

using Floats = std::vector<float>;
using Indices = std::vector<int64_t>;

struct Rows {
  Indices indices;
  Floats values;
};

// As a gather of all workers' rows gives them.
std::vector<uint8_t> Packed(const std::vector<Rows>& workers, uint64_t width) {
  std::vector<uint8_t> packed;
  for (const Rows& rows : workers) {
    const std::vector<uint8_t> own =
        PackRows(rows.indices.data(), reinterpret_cast<const uint8_t*>(rows.values.data()),
                 rows.indices.size(), width * sizeof(float));
    packed.insert(packed.end(), own.begin(), own.end());
  }
  return packed;
}

Rows Summed(const std::vector<Rows>& workers, uint64_t width, double divisor = 1) {
  const std::vector<uint8_t> packed = Packed(workers, width);
  int64_t count = 0;
  for (const Rows& rows : workers) count += rows.indices.size();
  const auto sorted = SortRows(packed.data(), count, width * sizeof(float));
  Rows sums;
  sums.indices.resize(CountIndices(sorted));
  sums.values.resize(sums.indices.size() * width);
  AddSortedRows(sorted, DType::kFloat32, width, divisor, sums.indices.data(),
                reinterpret_cast<uint8_t*>(sums.values.data()));
  return sums;
}

TEST(GatheredRowsTest, EachRowIsBehindItsIndex) {
  const std::vector<uint8_t> packed = Packed({{{7, 9}, {1, 2, 3, 4}}}, 2);
  ASSERT_EQ(packed.size(), 2 * (kRowIndexBytes + 8));
  int64_t index = 0;
  std::memcpy(&index, packed.data() + kRowIndexBytes + 8, kRowIndexBytes);
  EXPECT_EQ(index, 9);
  Floats row(2);
  std::memcpy(row.data(), packed.data() + kRowIndexBytes, 8);
  EXPECT_EQ(row, (Floats{1, 2}));
}

TEST(GatheredRowsTest, RowsOfOneIndexAreAdded) {
  const Rows sums = Summed({{{9, 2}, {1, 2, 3, 4}}, {{}, {}}, {{2, 5}, {10, 20, 30, 40}}}, 2);
  EXPECT_EQ(sums.indices, (Indices{2, 5, 9}));
  EXPECT_EQ(sums.values, (Floats{13, 24, 30, 40, 1, 2}));
}

TEST(GatheredRowsTest, NobodyHasRows) {
  const Rows sums = Summed({{{}, {}}, {{}, {}}}, 2);
  EXPECT_TRUE(sums.indices.empty());
}

// 1e8 + 1 - 1e8 depends on the order in float32; servers add in rank order, too.
TEST(GatheredRowsTest, RowsAreAddedInRankOrder) {
  const Rows sums = Summed({{{3}, {1e8f}}, {{3}, {1.0f}}, {{3}, {-1e8f}}}, 1);
  EXPECT_EQ(sums.values, (Floats{(1e8f + 1.0f) - 1e8f}));
}

TEST(GatheredRowsTest, AnAverageDividesByAllWorkers) {
  const Rows sums = Summed({{{1, 2}, {4, 8}}, {{2}, {16}}}, 1, 4);
  EXPECT_EQ(sums.values, (Floats{1, 6}));
}

TEST(GatheredRowsTest, RowsMayHaveNoElements) {
  const Rows sums = Summed({{{4, 1}, {}}, {{4}, {}}}, 0);
  EXPECT_EQ(sums.indices, (Indices{1, 4}));
}

}  // namespace
}  // namespace byteps

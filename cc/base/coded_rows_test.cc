#include "cc/base/coded_rows.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace byteps {
namespace {

constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

std::vector<uint8_t> Coded(const std::vector<int64_t>& indices, uint64_t row_bytes) {
  std::vector<uint8_t> coded = EncodeRowIndices(indices);
  coded.resize(coded.size() + indices.size() * row_bytes, 0xff);
  return coded;
}

TEST(CodedRowsTest, GivesTheIndicesBack) {
  const std::vector<std::vector<int64_t>> lists = {
      {}, {0}, {kMost}, {0, kMost}, {5, 6, 7}, {0, 127, 128, 300, int64_t{1} << 40}};
  for (const std::vector<int64_t>& list : lists) {
    for (const uint64_t row_bytes : {0, 1, 256}) {
      const std::vector<uint8_t> coded = Coded(list, row_bytes);
      EXPECT_TRUE(CanBeCodedRows(coded.size(), list.size(), row_bytes));
      std::vector<int64_t> indices = {1, 2, 3};
      uint64_t head = 0;
      ASSERT_TRUE(DecodeRowIndices(coded.data(), coded.size(), row_bytes, &indices, &head).ok());
      EXPECT_EQ(indices, list);
      EXPECT_EQ(head + list.size() * row_bytes, coded.size());
    }
  }
}

TEST(CodedRowsTest, NeighborsTakeAByteEach) {
  std::vector<int64_t> indices;
  for (int64_t i = 0; i < 100; ++i) indices.push_back(i * 127);
  EXPECT_EQ(EncodeRowIndices(indices).size(), 101u);
}

// What comes from a socket may be anything.
TEST(CodedRowsTest, RefusesWhatIsNone) {
  const auto error_of = [](const std::vector<uint8_t>& bytes, uint64_t row_bytes) {
    std::vector<int64_t> indices;
    uint64_t head = 0;
    return DecodeRowIndices(bytes.data(), bytes.size(), row_bytes, &indices, &head).message();
  };
  EXPECT_NE(error_of({}, 4).find("are no rows of 4 bytes"), std::string::npos);
  EXPECT_NE(error_of({2, 1, 1}, 4).find("are no rows"), std::string::npos);   // no rows
  EXPECT_NE(error_of({2, 5, 0}, 0).find("is not above"), std::string::npos);  // one index twice
  EXPECT_NE(error_of({1, 0x80, 0x80}, 0).find("is not above"), std::string::npos);  // cut off
  EXPECT_NE(error_of({1, 5, 0}, 0).find("has 1 bytes for its 1 rows"), std::string::npos);
  std::vector<uint8_t> too_large = Coded({0, kMost}, 0);
  too_large[1] = 1;  // the second index is 2^63
  EXPECT_NE(error_of(too_large, 0).find("is not above"), std::string::npos);
  const std::vector<uint8_t> long_number(12, 0xff);
  EXPECT_NE(error_of(long_number, 0).find("are no rows"), std::string::npos);
  for (size_t cut = 0; cut < Coded({3, 1000}, 8).size(); ++cut) {
    std::vector<uint8_t> bytes = Coded({3, 1000}, 8);
    bytes.resize(cut);
    EXPECT_NE(error_of(bytes, 8), "") << cut;
  }
}

TEST(CodedRowsTest, ChecksLengthsWithoutOverflow) {
  EXPECT_TRUE(CanBeCodedRows(1, 0, 256));
  EXPECT_FALSE(CanBeCodedRows(0, 0, 256));
  EXPECT_FALSE(CanBeCodedRows(258, 2, 128));  // no index takes less than a byte
  EXPECT_FALSE(CanBeCodedRows(2 * 128 + 28, 2, 128));
  EXPECT_FALSE(CanBeCodedRows(1, uint64_t{1} << 63, 2));
  EXPECT_FALSE(CanBeCodedRows(1, uint64_t{1} << 40, uint64_t{1} << 40));
}

TEST(CodedRowsTest, NeighborsAreSpreadOverTheBlocks) {
  constexpr int32_t kBlocks = 8;
  for (const int64_t stride : {1, 8, 1024}) {
    std::vector<int> rows(kBlocks);
    for (int64_t i = 0; i < 8000; ++i) ++rows[BlockOfRow(i * stride, kBlocks)];
    for (const int count : rows) EXPECT_NEAR(count, 1000, 150) << stride;
  }
  EXPECT_EQ(BlockOfRow(kMost, 1), 0);
}

}  // namespace
}  // namespace byteps

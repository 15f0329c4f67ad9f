#include "cc/tf/row_blocks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

namespace byteps {
namespace {

using Floats = std::vector<float>;
using Indices = std::vector<int64_t>;

// Rows of two numbers.
constexpr int64_t kWidth = 2;

std::unique_ptr<RowBlocks> Encoded(const Indices& indices, const Floats& rows, int32_t blocks) {
  auto all = std::make_unique<RowBlocks>();
  all->width = kWidth;
  all->row_bytes = kWidth * sizeof(float);
  EncodeRowBlocks(indices.data(), reinterpret_cast<const uint8_t*>(rows.data()), indices.size(),
                  blocks, all.get());
  return all;
}

// As from servers of a job with one worker.
void ReceiveWhatWasSent(RowBlocks* all) {
  for (RowBlock& block : all->blocks) {
    block.received_bytes = block.sent.size();
    block.received = std::make_unique<uint8_t[]>(block.sent.size());
    std::memcpy(block.received.get(), block.sent.data(), block.sent.size());
  }
}

Floats RowOf(const IndexedRow& row) {
  Floats values(kWidth);
  std::memcpy(values.data(), row.row, kWidth * sizeof(float));
  return values;
}

TEST(RowBlocksTest, ComeBackInTheOrderOfTheirIndices) {
  const Indices indices = {0, 1, 2, 5, 8, 13, 21, int64_t{1} << 40};
  Floats rows;
  for (size_t i = 0; i < indices.size() * kWidth; ++i) rows.push_back(0.5f * i);
  const Floats before = rows;
  for (const int32_t blocks : {1, 2, 3, kMostRowBlocks}) {
    const std::unique_ptr<RowBlocks> all = Encoded(indices, rows, blocks);
    ASSERT_EQ(all->blocks.size(), static_cast<size_t>(blocks));
    ReceiveWhatWasSent(all.get());
    std::vector<IndexedRow> summed;
    ASSERT_TRUE(DecodeRowBlocks("t", all.get(), &summed).ok());
    ASSERT_EQ(summed.size(), indices.size());
    for (size_t i = 0; i < summed.size(); ++i) {
      EXPECT_EQ(summed[i].index, indices[i]);
      EXPECT_EQ(RowOf(summed[i]), Floats(&rows[i * kWidth], &rows[(i + 1) * kWidth]));
    }
  }
  EXPECT_EQ(rows, before);
}

TEST(RowBlocksTest, ARowIsInTheBlockOfItsIndex) {
  const Indices indices = {3, 4, 5, 6, 7};
  const std::unique_ptr<RowBlocks> all = Encoded(indices, Floats(indices.size() * kWidth), 4);
  size_t found = 0;
  for (int32_t block = 0; block < 4; ++block) {
    for (const int64_t index : all->blocks[block].indices) {
      EXPECT_EQ(BlockOfRow(index, 4), block);
      ++found;
    }
  }
  EXPECT_EQ(found, indices.size());
}

TEST(RowBlocksTest, NoRowsAreBlocksToo) {
  const std::unique_ptr<RowBlocks> all = Encoded({}, {}, 3);
  ReceiveWhatWasSent(all.get());
  for (const RowBlock& block : all->blocks) EXPECT_EQ(block.sent.size(), 1u);
  std::vector<IndexedRow> summed;
  ASSERT_TRUE(DecodeRowBlocks("t", all.get(), &summed).ok());
  EXPECT_TRUE(summed.empty());
}

TEST(RowBlocksTest, ADamagedSumIsAnError) {
  const std::unique_ptr<RowBlocks> all = Encoded({1, 2}, {1, 2, 3, 4}, 1);
  ReceiveWhatWasSent(all.get());
  --all->blocks[0].received_bytes;
  std::vector<IndexedRow> summed;
  const Status status = DecodeRowBlocks("layer/table", all.get(), &summed);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  EXPECT_EQ(status.message().rfind("'layer/table': the sum of rows is damaged: ", 0), 0u);
}

TEST(RowBlocksTest, TheFirstErrorStays) {
  RowBlocks all;
  EXPECT_TRUE(all.FirstError().ok());
  all.Note(Unavailable("server 1 is lost"));
  all.Note(Internal("later"));
  EXPECT_EQ(all.FirstError().message(), "server 1 is lost");
}

std::string ErrorOf(const Indices& indices, int64_t limit) {
  return CheckRowIndices("t", indices.data(), indices.size(), limit).message();
}

TEST(RowIndicesTest, MustBeAscendingRowsOfTheTable) {
  EXPECT_TRUE(CheckRowIndices("t", nullptr, 0, 0).ok());
  EXPECT_EQ(ErrorOf({0, 3, 9}, 10), "");
  EXPECT_EQ(ErrorOf({0, 3, 10}, 10),
            "'t': index 10 is not a row of a table of 10 rows; check the ids that the embedding is "
            "called with");
  EXPECT_EQ(ErrorOf({-1}, -1),
            "'t': index -1 is not a row of a table; check the ids that the embedding is called "
            "with");
  EXPECT_EQ(ErrorOf({int64_t{1} << 50}, -1), "");  // a table without a size
  EXPECT_EQ(ErrorOf({4, 4}, 10), "'t': the indices must be ascending, but 4 comes after 4");
  EXPECT_EQ(ErrorOf({4, 2}, 10), "'t': the indices must be ascending, but 2 comes after 4");
}

TEST(RowIndicesTest, OnlyWorkersThatDisagreeLeaveTheOtherBlocks) {
  EXPECT_TRUE(IsDisagreement(FailedPrecondition("another shape")));
  EXPECT_TRUE(IsDisagreement(InvalidArgument("another kind")));
  EXPECT_FALSE(IsDisagreement(Unavailable("lost")));
  EXPECT_FALSE(IsDisagreement(OkStatus()));
}

}  // namespace
}  // namespace byteps

#include "cc/staging/shared_results.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

namespace byteps {
namespace {

constexpr size_t kChunkBytes = 64 << 20;

class SharedResultsTest : public ::testing::Test {
 protected:
  SharedResultsTest() {
    pinner_.pin = [this](void*, size_t bytes) {
      if (pinned_ == limit_) return ResourceExhausted("no more can be pinned");
      ++pinned_;
      pinned_bytes_ += bytes;
      return OkStatus();
    };
    pinner_.unpin = [this](void*) { --pinned_; };
    Check(SharedResults::Create("this host", 2, pinner_, &first_));
    Check(SharedResults::Open(first_->file(), "this host", 2, pinner_, &second_));
  }
  ~SharedResultsTest() override {
    first_.reset();
    second_.reset();
    EXPECT_EQ(pinned_, 0);
  }

  static void Check(const Status& status) { ASSERT_TRUE(status.ok()) << status.ToString(); }
  static SharedResults::Place PlaceOf(SharedResults& results, uint64_t key, size_t bytes,
                                      uint32_t parts = 1) {
    SharedResults::Place place;
    Check(results.PlaceOf(key, bytes, parts, &place));
    return place;
  }

  MemoryPinner pinner_;
  int pinned_ = 0;
  int limit_ = -1;
  size_t pinned_bytes_ = 0;
  std::shared_ptr<SharedResults> first_, second_;
};

TEST_F(SharedResultsTest, OneRankSeesWhatTheOtherHasWritten) {
  for (const uint64_t key : {7, 8}) {
    const SharedResults::Place written = PlaceOf(*first_, key, 1000, 3);
    const SharedResults::Place read = PlaceOf(*second_, key, 1000, 3);
    EXPECT_EQ(read.arrived, written.arrived);
    for (int word = 0; word < 6; ++word) EXPECT_FALSE(HasReached(read.words[word], read.arrived));
    std::memset(written.values, static_cast<int>(key), 1000);
    written.words[5].store(written.arrived);
    EXPECT_TRUE(HasReached(read.words[5], read.arrived));
    EXPECT_FALSE(HasReached(read.words[4], read.arrived));
    EXPECT_EQ(std::string(read.values, 1000), std::string(1000, static_cast<char>(key)));
  }
}

TEST_F(SharedResultsTest, ATensorKeepsItsPlaceAndCountsItsRounds) {
  const SharedResults::Place round = PlaceOf(*first_, 7, 1000);
  PlaceOf(*first_, 8, 1000);
  const SharedResults::Place next = PlaceOf(*first_, 7, 900);
  EXPECT_EQ(next.values, round.values);
  EXPECT_EQ(next.words, round.words);
  EXPECT_EQ(next.arrived, round.arrived + 1);
}

TEST_F(SharedResultsTest, AWordThatCountsOnIsNotTakenForAnOldOne) {
  const ArrivalWord word(0xfffffffe);
  EXPECT_TRUE(HasReached(word, 0xfffffffe));
  EXPECT_TRUE(HasReached(word, 0xfffffff0));
  EXPECT_FALSE(HasReached(word, 1));
}

// A thousand sizes take no more than a few times the last one's memory.
TEST_F(SharedResultsTest, ATensorThatGrowsLeavesLittleBehind) {
  constexpr size_t kStep = 100 << 10;
  for (size_t step = 1; step <= 1000; ++step) PlaceOf(*first_, 7, step * kStep);
  EXPECT_LE(pinned_bytes_, 4 * 1000 * kStep + kChunkBytes);
}

// What is copied at a time has been pinned at a time.
TEST_F(SharedResultsTest, ATensorLiesInOneChunk) {
  PlaceOf(*first_, 1, 1000);
  const int before = pinned_;
  const SharedResults::Place place = PlaceOf(*first_, 2, 3 * kChunkBytes);
  EXPECT_EQ(pinned_, before + 1);
  place.values[3 * kChunkBytes - 1] = 'x';
  EXPECT_EQ(PlaceOf(*second_, 1, 1000).values[0], 0);
  EXPECT_EQ(PlaceOf(*second_, 2, 3 * kChunkBytes).values[3 * kChunkBytes - 1], 'x');
}

TEST_F(SharedResultsTest, MemoryThatCannotBePinnedIsAnError) {
  limit_ = 1;
  PlaceOf(*first_, 1, 1000);
  SharedResults::Place place;
  const Status status = first_->PlaceOf(2, kChunkBytes, 1, &place);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status.ToString();
  EXPECT_FALSE(first_->PlaceOf(2, kChunkBytes, 1, &place).ok());
  EXPECT_EQ(pinned_, 1);
}

TEST_F(SharedResultsTest, RefusesOthersMemory) {
  std::shared_ptr<SharedResults> other;
  const Status wrong = SharedResults::Open(first_->file(), "another host", 2, pinner_, &other);
  EXPECT_NE(wrong.message().find("is not the memory"), std::string::npos) << wrong.ToString();
  const Status none = SharedResults::Open({getpid(), 1000000}, "this host", 2, pinner_, &other);
  EXPECT_EQ(none.code(), StatusCode::kUnavailable);
  EXPECT_NE(none.message().find("/proc/"), std::string::npos) << none.ToString();
  EXPECT_EQ(other, nullptr);
}

}  // namespace
}  // namespace byteps

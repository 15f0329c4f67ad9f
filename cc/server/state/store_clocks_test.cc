#include "cc/server/state/store_clocks.h"

#include <gtest/gtest.h>

#include "cc/base/store_rounds.h"
#include "cc/base/tensor_description.h"

namespace byteps {
namespace {

using Verdict = StoreClocks::Verdict;

// Protocol rule 36.
TEST(StoreClocksTest, TheFirstPushBeginsTheStoreAndOthersFirstAreInIt) {
  StoreClocks clocks(2, kUnboundedStaleness);
  EXPECT_EQ(clocks.OnPush(1, 0), Verdict::kBegin);
  EXPECT_EQ(clocks.OnPush(0, 0), Verdict::kIsIn);
  EXPECT_EQ(clocks.OnPush(0, 1), Verdict::kAdd);
  EXPECT_EQ(clocks.OnPush(1, 1), Verdict::kAdd);
  EXPECT_EQ(clocks.version(), 4u);
}

TEST(StoreClocksTest, AChangeNeedsAValue) {
  StoreClocks clocks(2, kUnboundedStaleness);
  EXPECT_EQ(clocks.OnPush(0, 1), Verdict::kNoValue);
  EXPECT_EQ(clocks.OnPush(1, 0), Verdict::kBegin);
  EXPECT_EQ(clocks.OnPush(0, 2), Verdict::kAdd);
}

TEST(StoreClocksTest, ANewStoreEndsTheOneBefore) {
  StoreClocks clocks(2, kUnboundedStaleness);
  clocks.OnPush(0, 0);
  EXPECT_EQ(clocks.OnPush(1, FirstRoundOf(1)), Verdict::kBegin);
  EXPECT_EQ(clocks.OnPush(0, 1), Verdict::kOld);
  EXPECT_FALSE(clocks.IsNewest(1));
  EXPECT_EQ(clocks.OnPush(0, FirstRoundOf(1)), Verdict::kIsIn);
  EXPECT_EQ(StoreOfVersion(clocks.version()), 1u);
}

TEST(StoreClocksTest, NobodyIsMoreThanTheStalenessAhead) {
  StoreClocks clocks(3, 2);
  for (int32_t worker = 0; worker < 3; ++worker) clocks.OnPush(worker, 0);
  clocks.OnPush(0, 1);
  clocks.OnPush(0, 2);
  EXPECT_FALSE(clocks.MustWait(2));
  clocks.OnPush(0, 3);
  EXPECT_TRUE(clocks.MustWait(3));
  clocks.OnPush(1, 1);
  EXPECT_TRUE(clocks.MustWait(3));
  clocks.OnPush(2, 1);
  EXPECT_FALSE(clocks.MustWait(3));
}

TEST(StoreClocksTest, WithoutStalenessAllWaitForAll) {
  StoreClocks clocks(2, 0);
  clocks.OnPush(0, 0);
  EXPECT_TRUE(clocks.MustWait(0));
  clocks.OnPush(1, 0);
  EXPECT_FALSE(clocks.MustWait(0));
}

TEST(StoreClocksTest, ANewStoreIsWaitedForByThoseWhoAreThere) {
  StoreClocks clocks(2, 1);
  clocks.OnPush(0, 0);
  clocks.OnPush(1, 0);
  clocks.OnPush(0, FirstRoundOf(1));
  EXPECT_FALSE(clocks.MustWait(FirstRoundOf(1)));
  clocks.OnPush(0, FirstRoundOf(1) + 1);
  EXPECT_TRUE(clocks.MustWait(FirstRoundOf(1) + 1));
}

TEST(StoreClocksTest, WhoHasLeftIsNotWaitedForUntilItPushesAgain) {
  StoreClocks clocks(2, 1);
  clocks.OnPush(0, 0);
  clocks.OnPush(1, 0);
  clocks.OnPush(0, 1);
  clocks.OnPush(0, 2);
  EXPECT_TRUE(clocks.MustWait(2));
  clocks.OnLeft(1);
  EXPECT_FALSE(clocks.MustWait(2));
  clocks.OnPush(1, 1);
  clocks.OnPush(0, 3);
  EXPECT_TRUE(clocks.MustWait(3));
}

// Protocol rule 37.
TEST(StoreClocksTest, APushThatTheInheritedValueHasIsNotAddedAgain) {
  StoreClocks before(3, kUnboundedStaleness);
  for (int32_t worker = 0; worker < 3; ++worker) before.OnPush(worker, 0);
  before.OnPush(0, 1);  // its answer is lost
  before.OnPush(1, 1);  // its answer has arrived
  StoreClocks after(3, kUnboundedStaleness);
  after.Inherit(before.version(), before.bits());
  EXPECT_EQ(after.OnPush(2, 1), Verdict::kAdd);  // it never arrived
  EXPECT_EQ(after.OnPush(0, 1), Verdict::kIsIn);
  EXPECT_EQ(after.OnPush(1, 2), Verdict::kAdd);
  EXPECT_EQ(after.OnPush(0, 2), Verdict::kAdd);
  EXPECT_GT(after.version(), before.version());
}

TEST(StoreClocksTest, AfterALossNobodyRunsAheadOfThoseWhoHaveNotComeYet) {
  StoreClocks clocks(2, 1);
  clocks.Inherit(20, 0);
  clocks.OnPush(0, 9);
  EXPECT_TRUE(clocks.MustWait(9));
  clocks.OnPush(1, 8);
  EXPECT_FALSE(clocks.MustWait(9));
}

// They had different numbers of rounds. A wait for those that nobody makes up for would never end.
TEST(StoreClocksTest, WhenAllHaveJoinedTheyGoOnAlike) {
  StoreClocks clocks(2, 1);
  for (const uint64_t round : {0, 1}) clocks.OnPush(0, round);
  for (const uint64_t round : {0, 1, 2}) clocks.OnPush(1, round);
  clocks.OnLeft(0);
  clocks.OnPush(1, 3);
  EXPECT_FALSE(clocks.MustWait(3)) << "nobody waits for who has joined";
  for (const int32_t worker : {0, 1}) clocks.OnAllJoined(worker, 4);
  clocks.OnPush(1, 4);
  EXPECT_FALSE(clocks.MustWait(4));
  clocks.OnPush(1, 5);
  EXPECT_TRUE(clocks.MustWait(5)) << "those who have come back are waited for again";
  EXPECT_EQ(clocks.OnPush(0, 2, /*lead=*/2), Verdict::kAdd);
  EXPECT_FALSE(clocks.MustWait(5));
  EXPECT_FALSE(clocks.MustWait(2, /*lead=*/2));
}

TEST(StoreClocksTest, AfterALossLeadsStayWhatTheyWere) {
  StoreClocks clocks(2, 1);
  clocks.Inherit(20, 0);
  clocks.OnTold(0, 1, /*lead=*/2);
  clocks.OnPush(1, 4);
  EXPECT_FALSE(clocks.MustWait(4));
}

// It may have nothing more to push.
TEST(StoreClocksTest, AfterALossAWorkerMaySayHowFarItIs) {
  StoreClocks clocks(2, 1);
  clocks.Inherit(20, 0);
  clocks.OnPush(0, 9);
  clocks.OnTold(1, 7);
  EXPECT_TRUE(clocks.MustWait(9));
  clocks.OnTold(1, 8);
  EXPECT_FALSE(clocks.MustWait(9));
}

TEST(StoreClocksTest, AStoreThatIsLostTakesNothingButANewOneBegins) {
  StoreClocks clocks(2, kUnboundedStaleness);
  clocks.Lose(7);
  EXPECT_EQ(clocks.OnPush(0, 3), Verdict::kLost);
  EXPECT_EQ(clocks.OnPush(1, 0), Verdict::kLost);
  EXPECT_EQ(clocks.OnPush(0, FirstRoundOf(1)), Verdict::kBegin);
}

}  // namespace
}  // namespace byteps

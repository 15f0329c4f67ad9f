#include "cc/coordinator/state/failover.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

constexpr uint64_t kKey = 17;

// Two parts, of which part 1 has moved.
TableEntry Moved(uint32_t version) {
  TableEntry entry;
  entry.key = kKey;
  entry.parts = {{10, 0, 0}, {10, 0, version}};
  return entry;
}

PartProgress Progress(uint32_t version, uint64_t next_round, bool has_result) {
  return {version, {{kKey, 1, next_round, has_result}}};
}

TEST(FailoverTest, WhatNobodyHasIsSummedAgain) {
  Failover failover(2);
  const uint32_t version = failover.Begin();
  failover.OnPartProgress(0, Progress(version, 7, true));
  EXPECT_FALSE(failover.all_paused());
  failover.OnPartProgress(1, Progress(version, 7, true));
  ASSERT_TRUE(failover.all_paused());
  const std::vector<PartsMoved::Part> parts = failover.Agree({Moved(version)});
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].part, 1u);
  EXPECT_EQ(parts[0].next_round, 7u);
  EXPECT_EQ(parts[0].result_from, -1) << "all have the result of round 6";
}

TEST(FailoverTest, WhoHasTheNewestResultSendsIt) {
  Failover failover(3);
  const uint32_t version = failover.Begin();
  failover.OnPartProgress(0, Progress(version, 7, true));
  failover.OnPartProgress(1, Progress(version, 8, false));  // its caller has the memory back
  failover.OnPartProgress(2, Progress(version, 8, true));
  const std::vector<PartsMoved::Part> parts = failover.Agree({Moved(version)});
  ASSERT_EQ(parts.size(), 1u);
  EXPECT_EQ(parts[0].next_round, 8u);
  EXPECT_EQ(parts[0].result_from, 2);
}

TEST(FailoverTest, WhoHasNotComeToAPartLacksItsResult) {
  Failover failover(2);
  const uint32_t version = failover.Begin();
  failover.OnPartProgress(0, Progress(version, 1, true));
  failover.OnPartProgress(1, {version, {}});
  EXPECT_EQ(failover.Agree({Moved(version)})[0].result_from, 0);
}

// Of a quorum: worker 2 was in round 5, and round 6 has ended without it.
TEST(FailoverTest, WhoIsTwoRoundsBehindGetsBothResults) {
  Failover failover(3);
  const uint32_t version = failover.Begin();
  failover.OnPartProgress(
      0, {version, {{kKey, 1, 7, true, false}}});  // its round 6 is still in flight
  failover.OnPartProgress(1, {version, {{kKey, 1, 7, true, true}}});
  failover.OnPartProgress(2, {version, {{kKey, 1, 5, true, false}}});
  TableEntry entry = Moved(version);
  EXPECT_EQ(failover.Agree({entry})[0].earlier_from, -1) << "nobody is two rounds behind in a sum";
  entry.tensor.backup_workers = 1;
  const std::vector<PartsMoved::Part> parts = failover.Agree({entry});
  EXPECT_EQ(parts[0].next_round, 7u);
  EXPECT_EQ(parts[0].result_from, 0);
  EXPECT_EQ(parts[0].earlier_from, 1);
}

TEST(FailoverTest, ANewLossAsksAllAgain) {
  Failover failover(2);
  const uint32_t first = failover.Begin();
  failover.OnPartProgress(0, Progress(first, 7, true));
  const uint32_t second = failover.Begin();
  EXPECT_GT(second, first);
  failover.OnPartProgress(1, Progress(first, 7, true));  // in flight when it happened
  EXPECT_FALSE(failover.all_paused());
  failover.OnPartProgress(0, Progress(second, 8, true));
  failover.OnPartProgress(1, Progress(second, 8, true));
  ASSERT_TRUE(failover.all_paused());
  EXPECT_EQ(failover.Agree({Moved(second)})[0].next_round, 8u);
  failover.End();
  EXPECT_FALSE(failover.is_running());
}

TEST(FailoverTest, ResultsThatAllHaveNeedNotBeKept) {
  Failover failover(2);
  EXPECT_TRUE(failover.OnResults(0, {{{kKey, 3}, {18, 1}}}).empty());
  EXPECT_TRUE(failover.OnResults(0, {{{kKey, 3}}}).empty()) << "it is one worker";
  EXPECT_TRUE(failover.OnResults(1, {{{kKey, 2}}}).empty()) << "it will say so of round 3";
  const std::vector<RoundProgress::Tensor> all_have = failover.OnResults(1, {{{kKey, 3}}});
  ASSERT_EQ(all_have.size(), 1u);
  EXPECT_EQ(all_have[0].key, kKey);
  EXPECT_EQ(all_have[0].next_round, 3u);
  EXPECT_TRUE(failover.OnResults(0, {{{kKey, 4}}}).empty()) << "the count begins anew";
}

TEST(FailoverTest, OnceAWorkerHasLeftNobodyIsToldToDropResults) {
  Failover failover(2);
  failover.OnDeparted(1);
  EXPECT_TRUE(failover.OnResults(0, {{{kKey, 3}}}).empty());
}

TEST(FailoverTest, NobodyWaitsForOneThatHasLeft) {
  Failover failover(2);
  const uint32_t version = failover.Begin();
  failover.OnPartProgress(0, {version, {}});
  failover.OnDeparted(1);
  EXPECT_TRUE(failover.all_paused());
  EXPECT_TRUE(failover.Agree({Moved(version)}).empty()) << "round 0 of what nobody has begun";
}

}  // namespace
}  // namespace byteps

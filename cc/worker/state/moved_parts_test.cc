#include "cc/worker/state/moved_parts.h"

#include "cc/worker/state/testing/state_under_test.h"

namespace byteps {
namespace {

class MovedPartsTest : public ConnectedStateTest {};

TEST_F(MovedPartsTest, TheExchangeInFlightHasNewOwners) {
  const auto exchange = worker_.Placed("a");
  worker_.Lose(0, 3);
  worker_.Break(0);
  worker_.Move(*exchange, 1, 3);
  EXPECT_EQ(exchange->places[0].server, 1);
  FrameHeader header;
  header.key = KeyOfName("a");
  const PartPlacement* const place = worker_.state.keys.FindPlace(header);
  ASSERT_NE(place, nullptr);
  EXPECT_EQ(place->version, 3u);
  EXPECT_EQ(PartsOf(worker_.Receive(1, StateUnderTest::Reply(*exchange, 0))), Parts());
  EXPECT_TRUE(exchange->part_done[0]) << "it is still the exchange that is answered";
}

TEST_F(MovedPartsTest, WhatIsNotAnsweredIsPushedToTheNewOwner) {
  const auto exchange = worker_.Placed("a", 4 * 250);
  worker_.Receive(0, StateUnderTest::Reply(*exchange, 0));
  worker_.Lose(0, 1);
  worker_.Break(0);
  const Effects moved = worker_.Move(*exchange, 1, 1);
  EXPECT_EQ(PartsOf(moved), (Parts{2}));
  EXPECT_EQ(moved.frames[0].connection, worker_.connection(1));
  EXPECT_EQ(moved.frames[0].frame.header.placement_version, 1u);
  EXPECT_EQ(worker_.counters().retried_parts, 1u);
  FrameHeader old = StateUnderTest::Reply(*exchange, 2);
  old.placement_version = 0;
  worker_.Receive(1, old);
  EXPECT_FALSE(exchange->part_done[2]);
  worker_.Receive(1, StateUnderTest::Reply(*exchange, 2));
  EXPECT_TRUE(exchange->part_done[2]);
}

TEST_F(MovedPartsTest, AResultThatOthersLackIsSentToTheNewOwner) {
  const auto exchange = worker_.Placed("a");
  worker_.Receive(0, StateUnderTest::Reply(*exchange, 0));
  worker_.Receive(1, StateUnderTest::Reply(*exchange, 1));
  worker_.Lose(0, 1);
  worker_.Break(0);
  const uint64_t key = exchange->entry->key;
  const Effects moved = worker_.Move(*exchange, 1, 1, {{key, 0, 1, StateUnderTest::kRank}});
  ASSERT_EQ(moved.frames.size(), 1u);
  EXPECT_TRUE(moved.frames[0].frame.header.IsResult());
  EXPECT_EQ(moved.frames[0].frame.payload, exchange->PartOutput(0));
  // Until all have it.
  EXPECT_NE(worker_.state.keys.Find("a")->last, nullptr);
  const Effects held = worker_.Do(
      [&](Effects* at) { worker_.state.kept_results.OnResultProgress({{{key, 1}}}, at); });
  EXPECT_EQ(held.dropped.size(), 1u);
  EXPECT_EQ(worker_.state.keys.Find("a")->last, nullptr);
}

TEST_F(MovedPartsTest, AWithdrawalMovesWithItsPart) {
  const auto exchange = worker_.Placed("a");
  worker_.Do([&](Effects* at) {
    worker_.state.exchanges.Finish(exchange, Cancelled("the caller leaves"), at);
  });
  worker_.Lose(0, 1);
  worker_.Break(0);
  const Effects moved = worker_.Move(*exchange, 1, 1);
  ASSERT_EQ(PartsOf(moved), (Parts{0}));
  EXPECT_EQ(moved.frames[0].frame.header.status, StatusCode::kCancelled);
  EXPECT_EQ(moved.frames[0].frame.header.placement_version, 1u);
}

TEST_F(MovedPartsTest, PartsThatWereNotAskedForMayNotMove) {
  const auto exchange = worker_.Placed("a");
  Status status;
  worker_.Move(*exchange, 1, 1, {}, &status);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace byteps

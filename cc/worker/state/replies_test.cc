#include "cc/worker/state/replies.h"

#include <functional>

#include "cc/worker/state/testing/state_under_test.h"

namespace byteps {
namespace {

class RepliesTest : public ConnectedStateTest {};

TEST_F(RepliesTest, TheLastPartEndsTheExchange) {
  const auto exchange = worker_.Placed("a");
  EXPECT_TRUE(worker_.Receive(0, StateUnderTest::Reply(*exchange, 0)).finished.empty());
  const Effects effects = worker_.Receive(1, StateUnderTest::Reply(*exchange, 1));
  ASSERT_EQ(effects.finished.size(), 1u);
  EXPECT_TRUE(effects.finished[0].second.ok());
  EXPECT_EQ(worker_.counters().unanswered_bytes, 0u);
  EXPECT_EQ(worker_.counters().received_bytes, 2000u);
}

// What no server may send: the connection ends with an error that says why.
TEST_F(RepliesTest, ImpossibleRepliesAreErrors) {
  const auto exchange = worker_.Placed("a");
  const struct {
    const char* why;
    std::function<void(FrameHeader*)> change;
  } kCases[] = {
      {"unknown key", [](FrameHeader* header) { header->key = 1; }},
      {"for worker 1", [](FrameHeader* header) { header->worker = 1; }},
      {"for epoch 4", [](FrameHeader* header) { header->epoch = 4; }},
      {"that round has not begun", [](FrameHeader* header) { header->round = 1; }},
      {"no such part", [](FrameHeader* header) { header->part = 2; }},
      {"not that part's owner", [](FrameHeader* header) { header->part = 1; }},
  };
  for (const auto& each : kCases) {
    for (const uint64_t bytes : {uint64_t{0}, uint64_t{1000}}) {
      FrameHeader header = StateUnderTest::Reply(*exchange, 0);
      header.payload_bytes = bytes;
      each.change(&header);
      Status status;
      worker_.Receive(0, header, &status);
      EXPECT_EQ(status.code(), StatusCode::kInternal) << each.why;
      EXPECT_NE(status.message().find(each.why), std::string::npos) << status.message();
    }
  }
  worker_.Receive(0, StateUnderTest::Reply(*exchange, 0));
  Status status;
  worker_.Receive(0, StateUnderTest::Reply(*exchange, 0), &status);
  EXPECT_NE(status.message().find("answered before"), std::string::npos);
}

TEST_F(RepliesTest, WhatBelongsToAnEarlierRoundIsDropped) {
  const auto first = worker_.Placed("a");
  const FrameHeader late = StateUnderTest::Reply(*first, 0);
  worker_.Do([&](Effects* at) {
    worker_.state.exchanges.Finish(first, Cancelled("the caller leaves"), at);
  });
  EXPECT_TRUE(worker_.Receive(0, late).finished.empty());  // none is in flight
  const auto second = worker_.Placed("a");
  worker_.Receive(0, late);
  EXPECT_FALSE(second->part_done[0]);
}

TEST_F(RepliesTest, AReplyWithAnErrorEndsTheExchange) {
  const auto exchange = worker_.Placed("a");
  FrameHeader header = StateUnderTest::Reply(*exchange, 0);
  header.status = StatusCode::kResourceExhausted;
  const Effects effects = worker_.Receive(0, header);
  ASSERT_EQ(effects.finished.size(), 1u);
  EXPECT_EQ(effects.finished[0].second.message(), "server 0: why");
}

TEST_F(RepliesTest, AReplyWithoutItsPayloadIsAnError) {
  const auto exchange = worker_.Placed("a");
  FrameHeader header = StateUnderTest::Reply(*exchange, 0);
  header.payload_bytes = 0;
  Status status;
  worker_.Receive(0, header, &status);
  EXPECT_NE(status.message().find("without its payload"), std::string::npos);
}

TEST_F(RepliesTest, ARequestedPartOvertakesWhatWaits) {
  const auto exchange = worker_.Placed("a", 12 * 250);
  FrameHeader header;
  header.type = FrameType::kRequested;
  header.key = exchange->entry->key;
  header.part = 11;
  worker_.Receive(1, header);
  EXPECT_EQ(PartsOf(worker_.Credit(0, 1000)), (std::vector<uint32_t>{11}));
}

// In the round to come, or in one that is not placed yet; nothing of rounds that are over.
TEST_F(RepliesTest, ARequestIsRememberedUntilThePartIsThere) {
  const auto first = worker_.Placed("a", 12 * 250);
  FrameHeader header;
  header.type = FrameType::kRequested;
  header.key = first->entry->key;
  header.part = 11;
  for (uint32_t part = 0; part < 12; ++part) {
    worker_.Credit(part % 2, 1000);
    worker_.Receive(part % 2, StateUnderTest::Reply(*first, part));
  }
  worker_.Receive(1, header);  // of round 0, which is over
  header.round = 1;
  worker_.Receive(1, header);
  worker_.Placed("fills the credit", 4 * 250);
  worker_.Placed("a", 12 * 250);
  EXPECT_EQ(PartsOf(worker_.Credit(0, 1000)), (std::vector<uint32_t>{11}));
}

TEST_F(RepliesTest, ProgressIsToldOfPathsThatHadBroken) {
  EXPECT_FALSE(worker_.Credit(0, 1).progress.has_value());
  worker_.Break(0);
  worker_.Open(0, /*again=*/true);
  EXPECT_TRUE(worker_.Credit(0, 1).progress.has_value());
}

TEST_F(RepliesTest, OtherFramesAreErrors) {
  FrameHeader header;
  header.type = FrameType::kPush;
  Status status;
  worker_.Receive(0, header, &status);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
}

}  // namespace
}  // namespace byteps

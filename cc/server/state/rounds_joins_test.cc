// Rounds of which some workers have no more data.
#include "cc/server/state/testing/rounds_under_test.h"

namespace byteps {
namespace {

using Texts = std::vector<std::string>;

TEST(RoundsJoinsTest, ARoundEndsWithoutThoseWhoHaveJoined) {
  RoundsUnderTest part;
  EXPECT_FALSE(part.Join({1}).round_complete) << "nobody is in the round yet";
  EXPECT_EQ(part.Contribute(0, 0).lacking, std::vector<int32_t>{2});
  EXPECT_TRUE(part.Contribute(2, 0).round_complete);
  EXPECT_EQ(part.Take(), Texts({"0: 0 ok", "2: 0 ok"}));
  part.Contribute(2, 1);
  EXPECT_TRUE(part.Join({0, 1}).round_complete) << "the last that it waited for joins";
  EXPECT_EQ(part.Take(), Texts({"2: 1 ok"}));
  EXPECT_TRUE(part.Contribute(2, 2).round_complete);
  part.Join({});
  part.Take();
  part.Contribute(2, 3);
  part.Contribute(0, 3);
  EXPECT_EQ(part.Take(), Texts()) << "all are waited for again, also who has missed rounds";
  part.Contribute(1, 3);
  EXPECT_EQ(part.Take(), Texts({"0: 3 ok", "1: 3 ok", "2: 3 ok"}));
}

TEST(RoundsJoinsTest, WhoHasPushedAndThenJoinsIsInTheRound) {
  RoundsUnderTest part;
  part.Contribute(1, 0);
  part.Join({1});
  part.Contribute(0, 0);
  EXPECT_EQ(part.Take(), Texts());
  part.Contribute(2, 0);
  EXPECT_EQ(part.Take(), Texts({"0: 0 ok", "1: 0 ok", "2: 0 ok"}));
}

TEST(RoundsJoinsTest, WhatIsNoSumFails) {
  for (const bool is_open : {true, false}) {
    RoundsUnderTest part;
    part.entry.tensor.kind = ExchangeKind::kGather;
    part.entry.tensor.shape = {-1};
    if (is_open) part.Contribute(0, 0);
    part.Join({1});
    part.Contribute(is_open ? 2 : 0, 0);
    if (!is_open) part.Contribute(2, 0);
    EXPECT_EQ(part.Take(), Texts({"0: 0 error", "2: 0 error"}));
    EXPECT_NE(part.text.find("worker 1 has joined and has no more data"), std::string::npos)
        << part.text;
    part.Join({});
    for (const int32_t worker : {0, 1, 2}) part.Contribute(worker, 1);
    EXPECT_EQ(part.Take(), Texts({"0: 1 ok", "1: 1 ok", "2: 1 ok"}));
  }
}

// Its part in the sum is not zero, only lost: the exchange has failed there.
TEST(RoundsJoinsTest, ARoundThatHasFailedOnWhoHasJoinedIsNoSum) {
  for (const bool is_open : {true, false}) {
    RoundsUnderTest part;
    part.departed.failed[{KeyOfName("t"), 1}] = 2;
    if (is_open) part.Contribute(0, 1);
    part.Join({1});
    part.Contribute(is_open ? 2 : 0, 1);
    if (!is_open) part.Contribute(2, 1);
    EXPECT_EQ(part.Take(), Texts({"0: 1 error", "2: 1 error"}));
    EXPECT_NE(part.text.find("worker 1 has given it up"), std::string::npos) << part.text;
    for (const int32_t worker : {0, 2}) part.Contribute(worker, 2);
    EXPECT_EQ(part.Take(), Texts({"0: 2 ok", "2: 2 ok"}));
  }
}

TEST(RoundsJoinsTest, ARoundInWhichItWasBeforeItFailedIsASum) {
  RoundsUnderTest part;
  part.departed.failed[{KeyOfName("t"), 1}] = 1;
  part.departed.failed[{KeyOfName("u"), 2}] = 1;
  part.Contribute(1, 0);
  part.Join({1, 2});
  part.Contribute(0, 0);
  EXPECT_EQ(part.Take(), Texts({"0: 0 ok", "1: 0 ok"}));
}

// A push may come after who has joined is known, and before this part has been told.
TEST(RoundsJoinsTest, NothingEndsBeforeThePartIsTold) {
  for (const bool is_gather : {true, false}) {
    RoundsUnderTest part;
    if (is_gather) {
      part.entry.tensor.kind = ExchangeKind::kGather;
      part.entry.tensor.shape = {-1};
    }
    part.Contribute(0, 0);
    EXPECT_TRUE(part.Begin(2, 0).ok());
    part.is_departed = true;
    part.departed.joined = {1};
    if (!is_gather) part.departed.failed[{KeyOfName("t"), 1}] = 1;
    part.End(2, 0);
    EXPECT_EQ(part.Take(), Texts());
    part.Join({1});
    EXPECT_EQ(part.Take(), Texts({"0: 0 error", "2: 0 error"}));
  }
}

TEST(RoundsJoinsTest, OthersThatLeaveAreMissed) {
  RoundsUnderTest part;
  part.Join({1});
  part.Contribute(0, 0);
  part.Leave(2);
  EXPECT_EQ(part.Take(), Texts({"0: 0 error"}));
}

TEST(RoundsJoinsTest, AProcessSetGoesOnWithoutAMemberAndIgnoresOthers) {
  RoundsUnderTest part(2, 0, "workers{0,2}/t");
  part.Join({1});
  part.Contribute(0, 0);
  EXPECT_EQ(part.Take(), Texts());
  part.Join({1, 2});
  EXPECT_EQ(part.Take(), Texts({"0: 0 ok"}));
}

}  // namespace
}  // namespace byteps

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

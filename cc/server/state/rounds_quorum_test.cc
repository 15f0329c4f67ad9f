// What a server decides about the rounds in which a quorum comes together, event by event.
#include "cc/server/state/rounds.h"
#include "cc/server/state/testing/rounds_under_test.h"

namespace byteps {
namespace {

using Texts = std::vector<std::string>;

// Two of three are needed.
TEST(RoundsOfQuorumTest, AQuorumWaitsForOthersUntilItsGraceWindowIsOver) {
  RoundsUnderTest part(2, 1);
  part.SetGrace(1);
  PushOutcome outcome = part.Contribute(0, 0);
  EXPECT_EQ(outcome.lacking, std::vector<int32_t>({1, 2}));
  EXPECT_TRUE(outcome.asks_all);
  EXPECT_EQ(outcome.deadline_ns, 0) << "the quorum is not there";
  outcome = part.Contribute(1, 0);
  EXPECT_EQ(outcome.deadline_ns, part.steady_ns + 1000000);
  EXPECT_EQ(part.Take(), Texts());
  EXPECT_FALSE(part.state.OnTime(part.Now(), &part.replies).round_complete) << "too early";
  part.steady_ns = outcome.deadline_ns;
  EXPECT_TRUE(part.state.OnTime(part.Now(), &part.replies).round_complete);
  EXPECT_EQ(part.Take(), Texts({"0: 0 ok", "1: 0 ok"}));
  EXPECT_FALSE(part.state.OnTime(part.Now(), &part.replies).round_complete) << "of a later round";
  part.Contribute(2, 0);
  EXPECT_EQ(part.Take(), Texts({"2: 0 ok"}));
}

TEST(RoundsOfQuorumTest, AQuorumsRoundWithAllWorkersEndsAtOnce) {
  RoundsUnderTest part(2, 1);
  part.SetGrace(1000);
  for (const int32_t worker : {0, 1}) part.Contribute(worker, 0);
  EXPECT_TRUE(part.Contribute(2, 0).round_complete);
  EXPECT_EQ(part.Take(), Texts({"0: 0 ok", "1: 0 ok", "2: 0 ok"}));
}

// So that what one has done does not wait for ever, and workers have all results that one may lack
// if the server is lost.
TEST(RoundsOfQuorumTest, NobodyMissesTwoRoundsOfAQuorum) {
  RoundsUnderTest part(2, 1);
  part.SetGrace(0);
  for (const uint64_t round : {0, 1}) {
    for (const int32_t worker : {0, 1}) part.Contribute(worker, round);
  }
  EXPECT_EQ(part.Take(), Texts({"0: 0 ok", "1: 0 ok"}));
  part.Contribute(2, 0);
  EXPECT_EQ(part.Take(), Texts({"2: 0 ok"})) << "it is not in round 1 yet";
  part.Contribute(2, 1);
  EXPECT_EQ(part.Take(), Texts({"0: 1 ok", "1: 1 ok", "2: 1 ok"}));
  for (const int32_t worker : {0, 1}) part.Contribute(worker, 2);
  EXPECT_EQ(part.Take(), Texts({"0: 2 ok", "1: 2 ok"})) << "it was in the last one";
}

TEST(RoundsOfQuorumTest, AQuorumGoesOnFromALostServerWithAllWorkers) {
  RoundsUnderTest part(2, 1);
  part.SetGrace(0);
  part.state.GoOnFrom({0, 0, /*next_round=*/4, /*result_from=*/0});
  for (const int32_t worker : {0, 1}) part.Contribute(worker, 4);
  EXPECT_EQ(part.Take(), Texts()) << "worker 2 may lack the result of round 3";
  part.Contribute(2, 3);
  EXPECT_EQ(part.Take(), Texts()) << "that is still to come";
  part.state.EndResult(part.PushOf(0, 3), {}, &part.replies);
  EXPECT_EQ(part.Take(), Texts({"2: 3 ok"})) << "it may not have been in round 3";
  part.Contribute(2, 4);
  EXPECT_EQ(part.Take(), Texts({"0: 4 ok", "1: 4 ok", "2: 4 ok"}));
  for (const int32_t worker : {0, 1}) part.Contribute(worker, 5);
  EXPECT_EQ(part.Take(), Texts({"0: 5 ok", "1: 5 ok"}));
}

// Round 2 had ended when the reply of round 1 to worker 2, which was in that, was lost.
TEST(RoundsOfQuorumTest, WhoIsTwoRoundsBehindAtALostServerGetsBothResults) {
  RoundsUnderTest part(2, 1);
  part.SetGrace(0);
  part.state.GoOnFrom({0, 0, /*next_round=*/3, /*result_from=*/0, /*earlier_from=*/1});
  for (const int32_t worker : {0, 1}) part.Contribute(worker, 3);
  part.Contribute(2, 1);
  EXPECT_EQ(part.Take(), Texts());
  bool is_needed = true;
  ASSERT_TRUE(part.state.CheckResult(part.PushOf(1, 1), &is_needed).ok());
  EXPECT_TRUE(is_needed);
  part.state.EndResult(part.PushOf(1, 1), {}, &part.replies);
  EXPECT_EQ(part.Take(), Texts({"2: 1 ok"}));
  ASSERT_TRUE(part.state.CheckResult(part.PushOf(1, 1), &is_needed).ok());
  EXPECT_FALSE(is_needed) << "it comes twice";
  EXPECT_EQ(part.state.CheckResult(part.PushOf(1, 2), &is_needed).code(),
            StatusCode::kInvalidArgument)
      << "worker 0 has it";
  part.state.EndResult(part.PushOf(0, 2), {}, &part.replies);
  part.Contribute(2, 2);
  EXPECT_EQ(part.Take(), Texts({"2: 2 ok"}));
  part.Contribute(2, 3);
  EXPECT_EQ(part.Take(), Texts({"0: 3 ok", "1: 3 ok", "2: 3 ok"}));
}

// Each state of worker 2's contribution when the window of the others is over.
TEST(RoundsOfQuorumTest, AGraceWindowEndsInEachStateOfAContribution) {
  for (const std::string state : {"absent", "receiving", "waiting", "given up"}) {
    RoundsUnderTest part(2, 1);
    part.SetGrace(1);
    for (const int32_t worker : {0, 1}) part.Contribute(worker, 0);
    if (state != "absent") (void)part.Begin(2, 0);
    if (state == "waiting") part.End(2, 0);
    if (state == "given up") {
      part.state.Withdraw(2, part.entry, 0, Cancelled("not now"), part.Now(), &part.replies);
      EXPECT_EQ(part.Take(), Texts({"0: 0 error", "1: 0 error"}));
    }
    part.steady_ns += 2000000;
    const bool ends = part.state.OnTime(part.Now(), &part.replies).round_complete;
    EXPECT_EQ(ends, state == "absent" || state == "receiving") << state;
    if (state == "receiving") part.End(2, 0);
    if (state == "given up") continue;
    Texts expected = {"0: 0 ok", "1: 0 ok"};
    if (state != "absent") expected.push_back("2: 0 ok");
    EXPECT_EQ(part.Take(), expected) << state;
    EXPECT_EQ(part.state.open_round(), 1u);
  }
}

// The worker's changes are in no round otherwise.
TEST(RoundsOfQuorumTest, ALostWorkerEndsAQuorumsRoundForAll) {
  for (const bool is_behind : {false, true}) {
    RoundsUnderTest part(2, 1);
    part.SetGrace(0);
    const uint64_t round = is_behind ? 1 : 0;
    for (uint64_t each = 0; each < round; ++each) {
      for (const int32_t worker : {0, 1}) part.Contribute(worker, each);
    }
    part.Contribute(0, round);
    (void)part.Take();
    part.Leave(2, Unavailable("worker 2 is lost"));
    EXPECT_EQ(part.Take(), Texts({"0: " + std::to_string(round) + " error"}));
    part.Contribute(1, round);
    EXPECT_EQ(part.Take(), Texts({"1: " + std::to_string(round) + " error"}));
  }
}

TEST(RoundsOfQuorumTest, ClocksThatAreSetDoNotMoveAGraceWindow) {
  RoundsUnderTest part(2, 1);
  part.SetGrace(1);
  for (const int32_t worker : {0, 1}) part.Contribute(worker, 0);
  part.now_ns -= 500;
  part.steady_ns += 2000000;
  EXPECT_TRUE(part.state.OnTime(part.Now(), &part.replies).round_complete);
}

}  // namespace
}  // namespace byteps

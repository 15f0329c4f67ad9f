// What a server decides about the rounds of a part, event by event. What is summed is elsewhere.
#include "cc/server/state/rounds.h"

#include "cc/base/testing/state_machine.h"
#include "cc/server/state/testing/rounds_under_test.h"

namespace byteps {
namespace {

using Texts = std::vector<std::string>;
using State = RoundsState::State;

// Worker 0 of three; the round is 0.
TEST(RoundsStateTest, EachStateOfAContributionWithEachEvent) {
  ForEachEvent(RoundsState::kTransitions,
               {State::kAbsent, State::kReceiving, State::kWaiting, State::kAnswered},
               [](State from, const std::string& event) {
                 // With a backup worker, a round may end while a contribution is arriving.
                 const bool may_end_early = from == State::kReceiving && event == "round ends";
                 RoundsUnderTest part(may_end_early ? 2 : RoundsUnderTest::kWorkers,
                                      may_end_early ? 1 : 0);
                 const auto fail = [&] {
                   part.state.Withdraw(1, part.entry, part.state.open_round(), Cancelled("not now"),
                                       part.Now(), &part.replies);
                 };
                 if (from != State::kAbsent) (void)part.Begin(0, 0);
                 if (from == State::kWaiting || from == State::kAnswered) part.End(0, 0);
                 if (from == State::kAnswered) fail();
                 ASSERT_EQ(part.state.state(0), from) << event;
                 if (event == "Begin") (void)part.Begin(0, 0);
                 const bool is_arriving = from == State::kReceiving;
                 if (event == "End" && is_arriving) part.End(0, 0);
                 if (event == "round fails") fail();
                 if (event == "End after round fails" && is_arriving) {
                   fail();
                   part.End(0, 0);
                 }
                 if (event == "round ends") {
                   if (from == State::kAnswered) (void)part.Begin(1, 1);
                   for (int32_t worker : {1, 2}) {
                     if (from != State::kAnswered && from != State::kAbsent)
                       part.Contribute(worker, 0);
                   }
                 }
                 EXPECT_EQ(part.state.state(0), StateAfter(RoundsState::kTransitions, from, event))
                     << event << " in state " << static_cast<int>(from);
               });
}

TEST(RoundsStateTest, ARoundEndsWithItsLastPushAndAnswersAll) {
  RoundsUnderTest part;
  EXPECT_EQ(part.Contribute(0, 0).lacking, std::vector<int32_t>({1, 2})) << "once in a round";
  EXPECT_TRUE(part.Contribute(1, 0).lacking.empty());
  EXPECT_EQ(part.Take(), Texts());
  const PushOutcome outcome = part.Contribute(2, 0);
  EXPECT_TRUE(outcome.round_complete && outcome.counted);
  EXPECT_TRUE(part.replies[0].ends_round);
  EXPECT_EQ(part.Take(), Texts({"0: 0 ok", "1: 0 ok", "2: 0 ok"}));
  EXPECT_EQ(part.sum.finished, std::vector<uint64_t>{0});
  ASSERT_EQ(outcome.arrivals.size(), 3u);
  EXPECT_EQ(outcome.arrivals[0].lag_ns, 0);
  EXPECT_EQ(outcome.arrivals[2].lag_ns, 4) << "two events for each push";
  EXPECT_EQ(part.state.open_round(), 1u);
}

TEST(RoundsStateTest, WorkersThatDisagreeAllHearWhoSentWhat) {
  RoundsUnderTest part;
  part.Contribute(0, 0);
  const Push other = part.PushOf(1, 0, &part.other_entry);
  EXPECT_TRUE(part.Begin(other).ok());
  EXPECT_EQ(part.sink, nullptr) << "nothing of it is summed";
  EXPECT_EQ(part.Take(), Texts({"0: 0 error"}));
  part.End(other);
  EXPECT_EQ(part.Take(), Texts({"1: 0 error"}));
  EXPECT_NE(part.text.find("workers disagree in round 0: worker 0 sent"), std::string::npos)
      << part.text;
  part.Contribute(2, 0);
  EXPECT_EQ(part.Take(), Texts({"2: 0 error"})) << "who comes late is told, too";
  EXPECT_EQ(part.sum.resets, 1);
}

TEST(RoundsStateTest, ANewerRoundEndsAnOpenOneWithAnError) {
  RoundsUnderTest part;
  part.Contribute(0, 0);
  EXPECT_TRUE(part.Begin(1, 1).ok());
  EXPECT_EQ(part.Take(), Texts({"0: 0 error"}));
  EXPECT_NE(part.text.find("worker 1 is in round 1 already"), std::string::npos) << part.text;
  EXPECT_EQ(part.state.open_round(), 1u);
  part.Contribute(2, 0);
  EXPECT_EQ(part.Take(), Texts({"2: 0 error"}));
}

TEST(RoundsStateTest, ARoundIsPushedOnceAndFromItsBegin) {
  RoundsUnderTest part;
  part.Contribute(0, 0);
  EXPECT_EQ(part.Begin(0, 0).message(), "pushed part 0 of tensor \"t\" for round 0 twice");
  Push push = part.PushOf(1, 0);
  push.header.payload_offset = 2;
  EXPECT_EQ(part.Begin(push).message(),
            "pushed part 0 of tensor \"t\" from byte 2 on, without having begun it");
}

TEST(RoundsStateTest, ASumThatCannotBeginFailsTheRound) {
  RoundsUnderTest part;
  part.sum.begins = ResourceExhausted("no memory");
  EXPECT_TRUE(part.Begin(0, 0).ok());
  part.End(0, 0);
  EXPECT_EQ(part.Take(), Texts({"0: 0 error"}));
  EXPECT_EQ(part.text, "tensor \"t\": round 0: no memory");
}

TEST(RoundsStateTest, AContributionThatIsNoneFailsTheRound) {
  RoundsUnderTest part;
  part.Contribute(0, 0);
  part.sum.ends = InvalidArgument("no blocks");
  part.Contribute(1, 0);
  EXPECT_EQ(part.Take(), Texts({"0: 0 error", "1: 0 error"}));
  EXPECT_EQ(part.text, "tensor \"t\": round 0: worker 1: no blocks");
}

// ---- workers that depart, or give a round up

TEST(RoundsStateTest, ARoundThatLacksALeaverFailsNowAndLater) {
  RoundsUnderTest part;
  part.Contribute(0, 0);
  part.Leave(2);
  EXPECT_EQ(part.Take(), Texts({"0: 0 error"}));
  EXPECT_NE(part.text.find("worker 2 has left the job, and worker 0 waited for it"),
            std::string::npos)
      << part.text;
  part.Contribute(1, 1);
  EXPECT_EQ(part.Take(), Texts({"1: 1 error"})) << "it lacks the leaver, too";
}

TEST(RoundsStateTest, ALeaverWhosePushIsHereIsNotMissed) {
  RoundsUnderTest part;
  part.Contribute(2, 0);
  part.Leave(2);
  part.Contribute(0, 0);
  part.Contribute(1, 0);
  EXPECT_EQ(part.Take(), Texts({"0: 0 ok", "1: 0 ok", "2: 0 ok"}));
}

TEST(RoundsStateTest, APushThatIsCutOffForGoodFailsItsRound) {
  RoundsUnderTest part;
  part.Contribute(0, 0);
  EXPECT_TRUE(part.Begin(2, 0).ok());
  part.Leave(2, OkStatus(), /*cut_off=*/false);
  EXPECT_EQ(part.Take(), Texts()) << "the rest may still arrive";
  part.Leave(2, Unavailable("it broke"), /*cut_off=*/true);
  EXPECT_EQ(part.Take(), Texts({"0: 0 error"}));
  EXPECT_NE(part.text.find("worker 2 is gone (it broke)"), std::string::npos) << part.text;
}

TEST(RoundsStateTest, AfterALossNoRoundCompletes) {
  RoundsUnderTest part;
  part.Contribute(0, 0);
  part.Lose(Unavailable("worker 2 is lost"));
  EXPECT_EQ(part.Take(), Texts({"0: 0 error"}));
  part.Contribute(1, 1);
  EXPECT_EQ(part.Take(), Texts({"1: 1 error"}));
  EXPECT_EQ(part.text, "tensor \"t\": round 1: worker 2 is lost");
}

TEST(RoundsStateTest, ARoundThatIsGivenUpFailsForThoseWhoWaitAndThoseWhoCome) {
  RoundsUnderTest part;
  part.Contribute(0, 0);
  part.state.Withdraw(1, part.entry, 1, Cancelled("it stops"), part.Now(), &part.replies);
  EXPECT_EQ(part.Take(), Texts({"0: 0 error"})) << "and those before it that have not ended";
  part.Contribute(2, 0);
  part.Contribute(0, 1);
  EXPECT_EQ(part.Take(), Texts({"2: 0 error", "0: 1 error"}));
  EXPECT_EQ(part.text, "tensor \"t\": round 1: worker 1 has given it up: it stops");
}

// ---- backup workers

TEST(RoundsStateTest, WhoIsTooLateForARoundGetsItsResult) {
  RoundsUnderTest part(2, /*backup_workers=*/1);
  part.Contribute(0, 0);
  part.Contribute(1, 0);
  EXPECT_EQ(part.Take(), Texts({"0: 0 ok", "1: 0 ok"}));
  part.Contribute(0, 1);
  EXPECT_TRUE(part.Contribute(1, 1).round_complete);
  part.Contribute(0, 2);
  EXPECT_FALSE(part.Contribute(1, 2).round_complete) << "worker 2 would be three rounds behind";
  part.Take();
  const PushOutcome late = part.Contribute(2, 0);
  EXPECT_TRUE(late.round_complete) << "round 2, which waited for it";
  EXPECT_TRUE(late.arrivals[0].dropped);
  EXPECT_EQ(part.Take(), Texts({"2: 0 ok", "0: 2 ok", "1: 2 ok"}));
}

// ---- connections that come again

TEST(RoundsStateTest, APushThatWasCutOffGoesOnWhereItWas) {
  RoundsUnderTest part;
  EXPECT_TRUE(part.Begin(0, 0).ok());
  part.sum.received[0].taken = 3;
  std::optional<uint64_t> received;
  ASSERT_TRUE(part.Resume(0, 0, &received).ok());
  EXPECT_EQ(received, 3u);
  Push rest = part.PushOf(0, 0);
  rest.header.payload_offset = rest.header.payload_bytes = 2;
  EXPECT_EQ(part.Begin(rest).message(),
            "goes on with part 0 of tensor \"t\", 2 bytes from 2 on, where 3 of 4 are here");
}

TEST(RoundsStateTest, AnAnswerThatWasLostIsHandedOutAgainOnce) {
  RoundsUnderTest part;
  for (int32_t worker : {0, 1, 2}) part.Contribute(worker, 0);
  part.Take();
  std::optional<uint64_t> received;
  ASSERT_TRUE(part.Resume(1, 0, &received).ok());
  EXPECT_FALSE(received.has_value()) << "all of it is here";
  EXPECT_EQ(part.replies[0].generation, part.generation);
  EXPECT_EQ(part.Take(), Texts({"1: 0 ok"}));
  --part.generation;
  ASSERT_TRUE(part.Resume(1, 0, &received).ok());
  EXPECT_EQ(part.Take(), Texts()) << "it is in flight over this connection";
}

TEST(RoundsStateTest, WhoWaitsWhenItsConnectionBreaksIsAnsweredOverTheNextOne) {
  RoundsUnderTest part;
  part.Contribute(0, 0);
  std::optional<uint64_t> received;
  ASSERT_TRUE(part.Resume(0, 0, &received).ok());
  EXPECT_FALSE(received.has_value());
  part.Contribute(1, 0);
  part.Contribute(2, 0);
  ASSERT_EQ(part.replies.size(), 3u);
  EXPECT_EQ(part.replies[0].generation, 2u);
}

TEST(RoundsStateTest, APushThatNeverArrivedIsMadeFromItsBegin) {
  RoundsUnderTest part;
  std::optional<uint64_t> received;
  ASSERT_TRUE(part.Resume(0, 0, &received).ok());
  EXPECT_EQ(received, 0u);
  part.Contribute(0, 0);
  part.Contribute(0, 1);
  EXPECT_EQ(part.Resume(0, 0, &received).code(), StatusCode::kInvalidArgument) << "it is over";
}

// Both of a worker's connections have broken. Its exchange fails over the first that comes again,
// and it goes on there; what it asked over the other one comes later than that (protocol rule 31).
TEST(RoundsStateTest, AQuestionThatANewerPushHasOvertakenIsNotHostile) {
  RoundsUnderTest part;
  part.Contribute(0, 0);
  const auto other = std::make_shared<int>();
  const auto asks =
      std::exchange(part.connections[0], {other, reinterpret_cast<WorkerConnection*>(other.get())});
  part.Contribute(0, 1);
  part.connections[0] = asks;
  part.Take();
  std::optional<uint64_t> received;
  EXPECT_TRUE(part.Resume(0, 0, &received).ok());
  EXPECT_FALSE(received.has_value()) << "it does not come any more";
  EXPECT_EQ(part.Take(), Texts());
  EXPECT_EQ(part.Resume(0, 1, &received).code(), StatusCode::kInvalidArgument)
      << "it was made over the other connection";
}

// ---- parts whose server is lost

TEST(RoundsStateTest, ThoseWhoLackTheLastResultGetItFromTheWorkerThatHasIt) {
  RoundsUnderTest part;
  part.state.GoOnFrom({0, 0, /*next_round=*/5, /*result_from=*/1});
  part.Contribute(0, 4);
  EXPECT_EQ(part.Take(), Texts()) << "its result is still to come";
  bool is_needed = false;
  EXPECT_EQ(part.state.CheckResult(part.PushOf(2, 4), &is_needed).code(),
            StatusCode::kInvalidArgument)
      << "another one has it";
  ASSERT_TRUE(part.state.CheckResult(part.PushOf(1, 4), &is_needed).ok());
  EXPECT_TRUE(is_needed);
  part.state.EndResult(part.PushOf(1, 4), {part.connections[1], part.connections[1].get(), 1, 1},
                       &part.replies);
  EXPECT_EQ(part.Take(), Texts({"0: 4 ok"}));
  ASSERT_TRUE(part.state.CheckResult(part.PushOf(1, 4), &is_needed).ok());
  EXPECT_FALSE(is_needed) << "it comes twice";
}

// Of an alltoall, say. It is a loss, unlike a round that others have gone past.
TEST(RoundsStateTest, IfNobodyHasTheLastResultThoseWhoLackItHearOfALoss) {
  RoundsUnderTest part;
  part.state.GoOnFrom({0, 0, /*next_round=*/5, /*result_from=*/-1});
  part.Contribute(0, 4);
  ASSERT_EQ(part.replies.size(), 1u);
  EXPECT_EQ(part.replies[0].frame.header.status, StatusCode::kUnavailable);
  EXPECT_EQ(part.Take(), Texts({"0: 4 error"}));
  EXPECT_NE(part.text.find("is over on another server"), std::string::npos) << part.text;
  part.Contribute(1, 6);
  part.Contribute(0, 5);
  ASSERT_EQ(part.replies.size(), 1u);
  EXPECT_EQ(part.replies[0].frame.header.status, StatusCode::kFailedPrecondition);
}

TEST(RoundsStateTest, IfWhoHasTheLastResultIsGoneTooThoseWhoLackItAreTold) {
  RoundsUnderTest part;
  part.state.GoOnFrom({0, 0, /*next_round=*/5, /*result_from=*/1});
  part.Contribute(0, 4);
  part.Leave(1, Unavailable("it broke"), /*cut_off=*/true);
  EXPECT_EQ(part.Take(), Texts({"0: 4 error"}));
}

TEST(RoundsStateTest, MemoryIsGivenBackOnlyBetweenRounds) {
  RoundsUnderTest part;
  for (int32_t worker : {0, 1, 2}) part.Contribute(worker, 0);
  part.Contribute(0, 1);
  part.state.OnResultProgress(1);
  EXPECT_FALSE(part.sum.is_released);
  part.Contribute(1, 1);
  part.Contribute(2, 1);
  part.state.OnResultProgress(2);
  EXPECT_TRUE(part.sum.is_released);
}

}  // namespace
}  // namespace byteps

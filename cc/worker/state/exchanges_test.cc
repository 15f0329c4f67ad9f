#include "cc/worker/state/exchanges.h"

#include "cc/worker/state/testing/state_under_test.h"

namespace byteps {
namespace {

class ExchangesTest : public testing::Test {
 protected:
  Status TryToBegin(const std::string& name) {
    Status status;
    worker_.Begin(worker_.NewExchange(StateUnderTest::Tensor(name)), &status);
    return status;
  }
  Effects Finish(const std::shared_ptr<Exchange>& exchange, const Status& status) {
    return worker_.Do(
        [&](Effects* effects) { worker_.state.exchanges.Finish(exchange, status, effects); });
  }

  StateUnderTest worker_;
};

// One round of a key is outstanding (protocol rule 10).
TEST_F(ExchangesTest, OneOfANameIsInFlight) {
  worker_.Placed("a");
  const Status refused = TryToBegin("a");
  EXPECT_EQ(refused.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(refused.message().find("is in flight already"), std::string::npos);
  EXPECT_TRUE(TryToBegin("b").ok());
}

TEST_F(ExchangesTest, NoneBeginsAfterAFailureOrTheEnd) {
  worker_.Do([&](Effects* effects) {
    EXPECT_TRUE(worker_.state.Fail(Unavailable("worker 1 is lost"), std::nullopt, effects));
  });
  EXPECT_EQ(TryToBegin("a").code(), StatusCode::kUnavailable);
  worker_.Do([&](Effects* effects) { EXPECT_TRUE(worker_.state.Stop(effects)); });
  EXPECT_EQ(TryToBegin("a").code(), StatusCode::kCancelled);
}

// An exchange is begun, placed, or partly answered when it ends, well or not.
TEST_F(ExchangesTest, EndsOnceInEachState) {
  worker_.OpenAll();
  for (const Status& status : {OkStatus(), Internal("it fails")}) {
    for (const std::string state : {"begun", "placed", "partly answered"}) {
      const std::string name = state + (status.ok() ? ", well" : ", badly");
      const auto exchange = worker_.NewExchange(StateUnderTest::Tensor(name));
      worker_.Begin(exchange);
      if (state != "begun") worker_.Answer({exchange->request.tensor});
      if (state == "partly answered") worker_.Receive(0, StateUnderTest::Reply(*exchange, 0));
      const Effects effects = Finish(exchange, status);
      ASSERT_EQ(effects.finished.size(), 1u) << name;
      EXPECT_EQ(effects.finished[0].second.code(), status.code());
      EXPECT_EQ(Finish(exchange, status).finished.size(), 0u) << name;
      EXPECT_EQ(worker_.state.keys.Find(name)->live, nullptr);
      if (state == "begun") worker_.Answer({exchange->request.tensor});
      worker_.Credit(0, 1000);
      worker_.Credit(1, 1000);
    }
  }
  EXPECT_EQ(worker_.counters().exchanges, 6u);
  EXPECT_EQ(worker_.counters().failed_exchanges, 3u);
  EXPECT_EQ(worker_.counters().unanswered_bytes, 0u);
}

TEST_F(ExchangesTest, WhatFailsIsWithdrawnButForPartsThatHaveAResult) {
  worker_.OpenAll();
  const auto exchange = worker_.Placed("a");
  worker_.Receive(0, StateUnderTest::Reply(*exchange, 0));
  const Effects effects = Finish(exchange, Cancelled("the caller leaves"));
  ASSERT_EQ(effects.frames.size(), 1u);
  EXPECT_EQ(effects.frames[0].frame.header.part, 1u);
  EXPECT_EQ(effects.frames[0].frame.header.status, StatusCode::kCancelled);
}

TEST_F(ExchangesTest, WhenAllEndsNothingIsWithdrawn) {
  worker_.OpenAll();
  worker_.Placed("a");
  worker_.Placed("b");
  const Effects effects = worker_.Do([&](Effects* at) {
    worker_.state.Fail(Unavailable("worker 1 is lost"), LostPeer{Role::kWorker, 1}, at);
  });
  EXPECT_EQ(effects.finished.size(), 2u);
  EXPECT_TRUE(effects.frames.empty());
  EXPECT_NE(effects.finished[0].second.message().find("worker 1 is lost"), std::string::npos);
}

TEST_F(ExchangesTest, NothingIsPlacedWhileNewCutsAreToCome) {
  worker_.OpenAll();
  const auto first = worker_.Placed("a");
  Finish(first, OkStatus());
  const Effects held = worker_.Do([&](Effects* at) { worker_.state.placement.OnPauseRounds(at); });
  ASSERT_EQ(held.messages.size(), 1u);
  EXPECT_EQ(std::get<RoundProgress>(held.messages[0]).tensors[0].next_round, 1u);
  const auto second = worker_.NewExchange(StateUnderTest::Tensor("a"));
  EXPECT_TRUE(worker_.Begin(second).frames.empty());
  EXPECT_EQ(second->entry, nullptr);
  const Effects resumed =
      worker_.Do([&](Effects* at) { EXPECT_TRUE(worker_.state.placement.OnRetune({}, at).ok()); });
  EXPECT_EQ(PartsOf(resumed).size(), 2u);
}

TEST_F(ExchangesTest, ARefusedDeclarationEndsWhatWaitsForIt) {
  const auto exchange = worker_.NewExchange(StateUnderTest::Tensor("a"));
  const Effects begun = worker_.Begin(exchange);
  ASSERT_EQ(begun.messages.size(), 1u);
  DeclareReply reply;
  reply.request_id = 1;
  reply.results.push_back({InvalidArgument("the workers disagree"), {}});
  const Effects effects = worker_.Do(
      [&](Effects* at) { EXPECT_TRUE(worker_.state.placement.OnDeclareReply(reply, at).ok()); });
  ASSERT_EQ(effects.finished.size(), 1u);
  EXPECT_EQ(effects.finished[0].second.code(), StatusCode::kInvalidArgument);
}

TEST_F(ExchangesTest, ARoundIsGivenUpForOthersToSee) {
  worker_.OpenAll();
  Finish(worker_.Placed("a"), OkStatus());
  const auto live = worker_.Placed("b");
  const Effects effects = worker_.Do([&](Effects* at) {
    worker_.state.exchanges.GiveUpRounds({"a", "b", "unknown"}, "the program leaves", at);
  });
  EXPECT_EQ(PartsOf(effects).size(), 2u);
  for (const Effects::Outgoing& out : effects.frames) {
    EXPECT_EQ(out.frame.header.key, KeyOfName("a"));
    EXPECT_EQ(out.frame.header.round, 1u);
  }
  EXPECT_FALSE(live->finished);
  EXPECT_EQ(worker_.state.exchanges.NextRounds().at("a"), 2u);
}

TEST_F(ExchangesTest, RoundsAreSkippedForwardOnly) {
  worker_.Placed("live");
  worker_.state.exchanges.SkipToRounds({{"a", 5}, {"live", 9}});
  worker_.state.exchanges.SkipToRounds({{"a", 3}});
  EXPECT_EQ(worker_.state.exchanges.NextRounds().at("a"), 5u);
  EXPECT_EQ(worker_.state.exchanges.NextRounds().at("live"), 1u);
}

TEST_F(ExchangesTest, ByPartsEachPartLeavesWhenItIsReady) {
  worker_.OpenAll();
  PartedExchangeRequest request;
  request.tensor = StateUnderTest::Tensor("a");
  request.done = [](const Status&) {};
  const auto exchange = std::make_shared<Exchange>(std::move(request));
  worker_.Begin(exchange);
  const Effects placed = worker_.Answer({exchange->request.tensor});
  ASSERT_EQ(placed.placed.size(), 1u);
  EXPECT_TRUE(placed.frames.empty());
  std::vector<float> input(250), output(250);
  const auto send = [&](uint32_t number) {
    PartRequest part;
    part.part = number;
    part.input = input.data();
    part.output = output.data();
    part.done = [](bool) {};
    return worker_.Do([&](Effects* at) {
      worker_.state.exchanges.OnPartReady(exchange, std::move(part), nullptr, at);
    });
  };
  EXPECT_EQ(PartsOf(send(1)), (std::vector<uint32_t>{1}));
  EXPECT_EQ(worker_.Receive(1, StateUnderTest::Reply(*exchange, 1)).parts_done.size(), 1u);
  Finish(exchange, OkStatus());
  EXPECT_TRUE(PartsOf(send(0)).empty());
}

// A worker comes to the rounds of a quorum when a server asks for them: to the next one, or to that
// after it if the next one has ended without this worker.
TEST_F(ExchangesTest, ARoundIsRequestedUntilItBegins) {
  worker_.OpenAll();
  EXPECT_FALSE(worker_.state.exchanges.IsRequested("a")) << "unknown";
  const auto first = worker_.Placed("a", 250);
  FrameHeader request;
  request.type = FrameType::kRequested;
  request.key = first->entry->key;
  worker_.Receive(0, request);
  EXPECT_FALSE(worker_.state.exchanges.IsRequested("a")) << "it is in flight";
  worker_.Receive(0, StateUnderTest::Reply(*first, 0));
  EXPECT_FALSE(worker_.state.exchanges.IsRequested("a")) << "it has ended";
  request.round = 2;
  worker_.Receive(0, request);
  EXPECT_TRUE(worker_.state.exchanges.IsRequested("a")) << "others are a round ahead";
  for (const uint64_t round : {1, 2}) {
    const auto exchange = worker_.Placed("a", 250);
    EXPECT_EQ(exchange->round, round);
    worker_.Receive(0, StateUnderTest::Reply(*exchange, 0));
    EXPECT_EQ(worker_.state.exchanges.IsRequested("a"), round == 1);
  }
}

// Nobody waits for who is no member of a process set (protocol rule 3).
TEST_F(ExchangesTest, MembersOfASetGiveUpItsRoundsAndNobodyElse) {
  Exchanges& exchanges = worker_.state.exchanges;
  const auto give_up = [&](const std::string& name) {
    return worker_.Do([&](Effects* effects) { exchanges.GiveUpRounds({name}, "", effects); });
  };
  for (const std::string own : {"workers{0-1}/a", "workers{0}/a"}) {
    EXPECT_EQ(give_up(own).messages.size(), 1u) << own;
    EXPECT_EQ(exchanges.NextRounds().at(own), 1u);
    worker_.Answer({KeyTable::PlaceholderOf(own)});
  }
  // One of another worker, and one of a worker that the job has not.
  for (const std::string other : {"workers{1}/a", "workers{0,2}/a"}) {
    EXPECT_TRUE(give_up(other).messages.empty()) << other;
    exchanges.SkipToRounds({{other, 5}});
    exchanges.Leave({other}, 1, "");
    worker_.Do([&](Effects* effects) {
      exchanges.TellLeft(effects);
      EXPECT_TRUE(effects->messages.empty());
    });
    EXPECT_EQ(exchanges.NextRounds().count(other), 0u);
  }
}

// A joined worker's zeros are for rounds that it has not begun (protocol rule 4).
TEST_F(ExchangesTest, WhoJoinsSaysWhatHasFailed) {
  worker_.OpenAll();
  Finish(worker_.Placed("well"), OkStatus());
  Finish(worker_.Placed("badly"), OkStatus());
  Finish(worker_.Placed("badly"), Internal("it fails"));
  worker_.Do(
      [&](Effects* effects) { worker_.state.exchanges.GiveUpRounds({"given up"}, "", effects); });
  std::map<uint64_t, uint64_t> failed;
  for (const Joined::Failed& each : worker_.state.exchanges.Join().failed)
    failed[each.key] = each.next_round;
  EXPECT_EQ(failed,
            (std::map<uint64_t, uint64_t>{{KeyOfName("badly"), 2}, {KeyOfName("given up"), 1}}));
}

// Who is not in a round of a quorum asks for its result.
TEST_F(ExchangesTest, WhoDoesNotContributePushesNothing) {
  worker_.OpenAll();
  TensorDescription tensor = StateUnderTest::Tensor("a");
  tensor.backup_workers = 1;
  tensor.codec = "int8";
  const auto exchange = worker_.NewExchange(tensor);
  exchange->request.contributes = false;
  worker_.Begin(exchange);
  const Effects effects = worker_.Answer({tensor});
  ASSERT_EQ(PartsOf(effects), (std::vector<uint32_t>{0, 1}));
  for (const Effects::Outgoing& out : effects.frames) {
    EXPECT_EQ(out.frame.header.payload_bytes, 0u);
    EXPECT_EQ(out.frame.header.codec, CodecId::kRaw);
    EXPECT_EQ(out.frame.header.element_count, 250u);
  }
  for (const uint32_t part : {0, 1})
    worker_.Receive(static_cast<int32_t>(part), StateUnderTest::Reply(*exchange, part));
  EXPECT_TRUE(exchange->finished);
}

}  // namespace
}  // namespace byteps

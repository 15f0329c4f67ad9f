#include "cc/worker/state/lost_servers.h"

#include "cc/worker/state/testing/state_under_test.h"

namespace byteps {
namespace {

class LostServersTest : public ConnectedStateTest {};

TEST_F(LostServersTest, SaysHowFarItIsOnceTheConnectionsHaveClosed) {
  const auto exchange = worker_.Placed("a");
  const Effects lost = worker_.Lose(0, 1);
  ASSERT_EQ(lost.closes.size(), 1u);
  EXPECT_EQ(lost.closes[0].connection, worker_.connection(0));
  EXPECT_EQ(lost.notices.size(), 1u);
  EXPECT_TRUE(lost.messages.empty());
  const Effects closed = worker_.Break(0);
  ASSERT_EQ(closed.messages.size(), 1u);
  const auto& held = std::get<PartProgress>(closed.messages[0]);
  EXPECT_EQ(held.version, 1u);
  ASSERT_EQ(held.parts.size(), 1u);
  EXPECT_EQ(held.parts[0].part, 0u);
  EXPECT_EQ(held.parts[0].next_round, 0u);
}

// Of a host's workers only the owner of a part has its results. The others must not say that the
// rounds before the one in flight are over: a worker may lack the last one, which the owner has.
TEST_F(LostServersTest, ARoundThatWasGivenUpHidesNoneBeforeIt) {
  const auto first = worker_.Placed("a");
  worker_.Receive(0, StateUnderTest::Reply(*first, 0));
  worker_.Receive(1, StateUnderTest::Reply(*first, 1));
  worker_.Do([&](Effects* at) {
    worker_.state.kept_results.OnResultProgress({{{first->entry->key, 1}}}, at);
    worker_.state.exchanges.GiveUpRounds({"a"}, "the program leaves", at);
  });
  const auto live = worker_.Placed("a");
  ASSERT_EQ(live->round, 2u);
  worker_.Lose(0, 1);
  const Effects closed = worker_.Break(0);
  const auto& held = std::get<PartProgress>(closed.messages.at(0));
  ASSERT_EQ(held.parts.size(), 1u);
  EXPECT_EQ(held.parts[0].next_round, 1u);
}

TEST_F(LostServersTest, AServerThatWasNotLostCannotComeBack) {
  ServerRejoined back;
  for (const int32_t server : {-1, 0, 2}) {
    back.server = server;
    Status status;
    worker_.Do(
        [&](Effects* at) { status = worker_.state.lost_servers.OnServerRejoined(back, at); });
    EXPECT_EQ(status.code(), StatusCode::kInternal);
  }
}

// A server is started again while the parts of "a" are in flight at the other one.
TEST_F(LostServersTest, AServerThatIsStartedAgainGetsPartsWhenNothingOfThemArrives) {
  worker_.Lose(0, 1);
  worker_.Break(0);
  const auto exchange = worker_.NewExchange(StateUnderTest::Tensor("a"));
  worker_.Begin(exchange);
  worker_.Do([&](Effects* at) {
    DeclareReply reply;
    reply.request_id = 1;
    reply.results.push_back({OkStatus(), StateUnderTest::Entry(exchange->request.tensor)});
    reply.results[0].entry.parts[0].server = 1;
    EXPECT_TRUE(worker_.state.placement.OnDeclareReply(reply, at).ok());
  });
  worker_.Do([&](Effects* at) {
    PartsMoved moved;
    moved.version = 1;
    EXPECT_TRUE(worker_.state.moved_parts.OnPartsMoved(moved, at).ok());
  });
  // Part 0's reply is arriving.
  std::shared_ptr<Exchange> receiver;
  const FrameHeader arriving = StateUnderTest::Reply(*exchange, 0);
  EXPECT_TRUE(worker_.state.replies.OnHeader(worker_.From(1), arriving, Moment(), &receiver).ok());
  ServerRejoined back;
  back.version = 2;
  back.server = 0;
  back.host_id = "host2";
  back.host = "10.0.0.9";
  back.port = 9;
  for (const uint32_t part : {0u, 1u}) back.parts.push_back({exchange->entry->key, 0, part});
  const Effects begun = worker_.Do([&](Effects* at) {
    EXPECT_TRUE(worker_.state.lost_servers.OnServerRejoined(back, at).ok());
  });
  EXPECT_EQ(begun.revivals.size(), 1u);
  EXPECT_TRUE(begun.messages.empty());
  // A reply that begins now is dropped; the one that was arriving counts, and is the last.
  worker_.Receive(1, StateUnderTest::Reply(*exchange, 1));
  EXPECT_FALSE(exchange->part_done[1]);
  const Effects drained = worker_.Do([&](Effects* at) {
    EXPECT_TRUE(worker_.state.replies.OnFrame(worker_.From(1), arriving, {true, {}, ""}, at).ok());
  });
  EXPECT_TRUE(exchange->part_done[0]);
  ASSERT_EQ(drained.messages.size(), 1u);
  const auto& held = std::get<PartProgress>(drained.messages[0]);
  ASSERT_EQ(held.parts.size(), 2u);
  EXPECT_EQ(held.parts[0].next_round, 1u);
  EXPECT_EQ(held.parts[1].next_round, 0u);
  EXPECT_EQ(worker_.state.servers[0].endpoint.host, "10.0.0.9");
  worker_.Open(0);
  EXPECT_EQ(PartsOf(worker_.Move(*exchange, 0, 2)), (Parts{1}));
}

// While it waits for connections to close, or for new owners, another server is lost.
TEST_F(LostServersTest, BeginsAnewWithEachNews) {
  JobDescription job = StateUnderTest::Job();
  worker_.Lose(0, 1);
  EXPECT_TRUE(worker_.state.failover.is_draining());
  worker_.Lose(1, 2);
  EXPECT_TRUE(worker_.Break(0).messages.empty());
  const Effects drained = worker_.Break(1);
  ASSERT_EQ(drained.messages.size(), 1u);
  EXPECT_EQ(std::get<PartProgress>(drained.messages[0]).version, 2u);
}

TEST_F(LostServersTest, AfterTheEndNothingIsSaid) {
  worker_.Lose(0, 1);
  worker_.Do([&](Effects* at) { worker_.state.Stop(at); });
  worker_.state.transmission.Break(&worker_.state.servers[0].paths[0]);
  const Effects effects =
      worker_.Do([&](Effects* at) { worker_.state.path_events.ReportIfDrained(at); });
  EXPECT_TRUE(effects.messages.empty());
}

}  // namespace
}  // namespace byteps

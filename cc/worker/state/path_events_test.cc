#include "cc/worker/state/path_events.h"

#include "cc/worker/state/testing/state_under_test.h"

namespace byteps {
namespace {

class PathEventsTest : public testing::Test {
 protected:
  Effects Answer(const ResumeAnswer& answer, Status* status) {
    return worker_.Do([&](Effects* effects) {
      *status = worker_.state.path_events.OnResumeAnswer(worker_.From(0), answer, effects);
    });
  }

  StateUnderTest worker_;
};

TEST_F(PathEventsTest, APathThatComesAgainAsksBeforeItIsUsed) {
  worker_.OpenAll();
  const auto exchange = worker_.Placed("a");
  worker_.Break(0);
  const Effects opened = worker_.Open(0, /*again=*/true);
  ASSERT_EQ(opened.queries.size(), 1u);
  ASSERT_EQ(opened.queries[0].query.pushes.size(), 1u);
  EXPECT_EQ(opened.queries[0].query.pushes[0].part, 0u);
  Effects effects;
  worker_.Placed("b", 250, &effects);
  EXPECT_TRUE(effects.frames.empty());
  Status status;
  const Effects answered = Answer({{{exchange->entry->key, 0, 0, 400}}}, &status);
  EXPECT_TRUE(status.ok()) << status.ToString();
  ASSERT_EQ(PartsOf(answered), (Parts{0, 0}));  // the rest of "a", and "b"
  uint64_t offset = 0;
  for (const Effects::Outgoing& out : answered.frames) offset += out.frame.header.payload_offset;
  EXPECT_EQ(offset, 400u);
  EXPECT_EQ(worker_.counters().retried_parts, 1u);
}

TEST_F(PathEventsTest, AnAnswerToWhatWasNotAskedIsAnError) {
  worker_.OpenAll();
  const auto exchange = worker_.Placed("a");
  Status status;
  Answer({}, &status);  // it is ready
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  worker_.Break(0);
  worker_.Open(0, /*again=*/true);
  Answer({{{exchange->entry->key, 0, 0, 1000}}}, &status);  // all of it
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  Answer({{{exchange->entry->key, 7, 0, 0}}}, &status);
  EXPECT_EQ(status.code(), StatusCode::kInternal);
  Answer({{{exchange->entry->key, 0, 9, 0}, {1, 0, 0, 0}}}, &status);  // of what has ended
  EXPECT_TRUE(status.ok()) << status.ToString();
}

// Of an earlier life, one too many, or not what the handshake said.
TEST_F(PathEventsTest, ConnectionsThatNobodyWaitsForAreClosed) {
  EXPECT_EQ(worker_.Open(0, /*again=*/true).closes.size(), 1u);
  EXPECT_TRUE(worker_.Open(0).closes.empty());
  EXPECT_EQ(worker_.Open(0).closes.size(), 1u);
  EXPECT_TRUE(worker_.state.path_events.BeginAttempt(0, 0).is_open);
  worker_.state.path_events.BeginAttempt(1, 0);
  ++worker_.state.servers[1].lives;
  const auto late = worker_.NewConnection(1);
  const Effects effects = worker_.Do([&](Effects* at) {
    worker_.state.path_events.OnOpen(late, {1, 0, late.get(), "server 1"}, false, at);
  });
  EXPECT_EQ(effects.closes.size(), 1u);
}

TEST_F(PathEventsTest, AClosedConnectionIsMadeAgainWhileTheWorkerRuns) {
  worker_.OpenAll();
  const Source closed = worker_.From(0);
  int life = -1;
  const auto close = [&](const Source& source) {
    bool is_made_again = false;
    worker_.Do([&](Effects* at) {
      is_made_again = worker_.state.path_events.OnClosed(source, &life, at);
    });
    return is_made_again;
  };
  EXPECT_TRUE(close(closed));
  EXPECT_EQ(life, 0);
  EXPECT_FALSE(close(closed));  // no longer the path's
  worker_.Do([&](Effects* at) { worker_.state.Stop(at); });
  EXPECT_FALSE(close(worker_.From(1)));
}

TEST_F(PathEventsTest, WhetherAnUnreachableServerEndsTheJob) {
  using Loss = PathEvents::Loss;
  const auto& events = worker_.state.path_events;
  EXPECT_EQ(events.OnServerUnreachable(1, 0), Loss::kFailOver);
  EXPECT_EQ(events.OnServerUnreachable(1, 1), Loss::kNothing);  // another life
  worker_.Do([&](Effects* at) { worker_.state.lost_servers.OnServerLost({1, 0}, at); });
  EXPECT_EQ(events.OnServerUnreachable(0, 0), Loss::kNothing);  // known
  EXPECT_EQ(events.OnServerUnreachable(1, 0), Loss::kEndsJob);  // the last one
  EXPECT_FALSE(events.CheckMayConnect(0).ok());
  EXPECT_TRUE(events.CheckMayConnect(1).ok());
  worker_.Do([&](Effects* at) { worker_.state.Stop(at); });
  EXPECT_EQ(events.OnServerUnreachable(1, 0), Loss::kNothing);
}

}  // namespace
}  // namespace byteps

#include "cc/worker/state/lifecycle.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

using State = Lifecycle::State;

Lifecycle In(State state) {
  Lifecycle lifecycle;
  if (state == State::kFailed) lifecycle.Fail(Unavailable("first"), std::nullopt);
  if (state == State::kStopped) lifecycle.Stop();
  return lifecycle;
}

TEST(LifecycleTest, FailsOnce) {
  const std::pair<State, State> kCases[] = {{State::kRunning, State::kFailed},
                                            {State::kFailed, State::kFailed},
                                            {State::kStopped, State::kStopped}};
  for (const auto& [before, after] : kCases) {
    Lifecycle lifecycle = In(before);
    EXPECT_EQ(lifecycle.Fail(Internal("second"), LostPeer{Role::kServer, 1}),
              before == State::kRunning);
    EXPECT_EQ(lifecycle.state(), after);
    EXPECT_EQ(lifecycle.lost_peer().has_value(), before == State::kRunning);
  }
}

TEST(LifecycleTest, StopsOnceAndRemembersTheFailure) {
  for (const State before : {State::kRunning, State::kFailed, State::kStopped}) {
    Lifecycle lifecycle = In(before);
    EXPECT_EQ(lifecycle.Stop(), before != State::kStopped);
    EXPECT_EQ(lifecycle.state(), State::kStopped);
    EXPECT_EQ(lifecycle.failure().ok(), before != State::kFailed);
    EXPECT_EQ(lifecycle.Refusal().code(), StatusCode::kCancelled);
  }
}

TEST(LifecycleTest, RefusesWithTheFailure) {
  EXPECT_TRUE(In(State::kRunning).Refusal().ok());
  EXPECT_EQ(In(State::kFailed).Refusal().message(), "first");
}

}  // namespace
}  // namespace byteps

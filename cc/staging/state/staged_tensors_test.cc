#include "cc/staging/state/staged_tensors.h"

#include <gtest/gtest.h>

#include "cc/staging/state/testing/group_under_test.h"

namespace byteps {
namespace {

using State = StagedTensor::State;

constexpr State kAll[] = {State::kEnqueued, State::kComputed, State::kPlaced,
                          State::kStarted,  State::kFailing,  State::kEnded};

bool IsOver(State state) { return state == State::kFailing || state == State::kEnded; }

LaunchEntry Entry(LaunchEntry::Kind kind, uint64_t round = 1) {
  LaunchEntry entry;
  entry.kind = kind;
  entry.key = KeyOfName("a");
  entry.round = round;
  return entry;
}

TEST(StagedTensorsTest, StagesBeginOnceWithTheLaterOfComputedAndPlaced) {
  for (const bool is_placed_first : {false, true}) {
    GroupUnderTest group;
    const TensorPointer tensor = GroupUnderTest::NewTensor();
    const auto compute = [&] { return group.Compute(tensor).started; };
    const auto place = [&] { return group.Place(tensor, group.exchange).started; };
    EXPECT_EQ(is_placed_first ? place() : compute(), nullptr);
    EXPECT_EQ(is_placed_first ? compute() : place(), tensor);
    EXPECT_EQ(compute(), nullptr);
  }
}

TEST(StagedTensorsTest, StepsBeginUnlessItsMemoryMayBeGone) {
  for (const State state : kAll) {
    GroupUnderTest group;
    EXPECT_EQ(group.TensorIn(state)->BeginStep(), !IsOver(state)) << static_cast<int>(state);
  }
}

TEST(StagedTensorsTest, AnErrorOfTheWorkersIsDecidedByTheState) {
  for (const State state : kAll) {
    GroupUnderTest group;
    const TensorPointer tensor = group.TensorIn(state);
    const GroupEffects effects = group.Error(tensor);
    // Before it is placed no other rank knows of it; later it fails on all ranks by the log.
    const bool is_placed = state == State::kPlaced || state == State::kStarted;
    EXPECT_EQ(effects.failed_here, is_placed ? tensor : nullptr) << static_cast<int>(state);
    EXPECT_EQ(effects.finished, is_placed || IsOver(state) ? nullptr : tensor);
    EXPECT_FALSE(effects.group_failure.has_value());
  }
}

TEST(StagedTensorsTest, AnErrorBeforeTheRanksAreConnectedIsTheGroups) {
  GroupState state(/*alone=*/false);
  const TensorPointer tensor = GroupUnderTest::NewTensor();
  GroupEffects effects;
  state.tensors.OnPlaced(tensor, GroupUnderTest::NewExchange(), &effects);
  state.tensors.OnError(tensor, Internal("bad"), &effects);
  EXPECT_TRUE(effects.group_failure.has_value());
  ASSERT_EQ(effects.failed.size(), 1U);
  EXPECT_EQ(effects.failed[0].first, tensor);
}

TEST(StagedTensorsTest, AnErrorOfAWorkerThatIsAloneIsTheTensors) {
  GroupUnderTest group(/*alone=*/true);
  const TensorPointer tensor = group.Started();
  const GroupEffects effects = group.Error(tensor);
  EXPECT_EQ(effects.finished, tensor);
  EXPECT_EQ(effects.finished_with.code(), StatusCode::kInternal);
  EXPECT_EQ(effects.failed_here, nullptr);
}

// The worker has ended its exchange, and is about to say so.
TEST(StagedTensorsTest, WhoseNameIsUsedAgainFailsAtOnePointOfTheLog) {
  GroupUnderTest group;
  const TensorPointer earlier = group.Started();
  const TensorPointer later = GroupUnderTest::NewTensor();
  group.Compute(later);
  const GroupEffects effects = group.Place(later, GroupUnderTest::NewExchange("a", 2));
  EXPECT_EQ(effects.started, later);
  EXPECT_EQ(effects.failed_here, earlier);
  EXPECT_TRUE(effects.failed.empty());
  // What the log has before that is launched.
  LaunchEntry entry;
  entry.key = KeyOfName("a");
  for (uint64_t round : {1, 2}) {
    entry.round = round;
    EXPECT_EQ(group.state.tensors.Find(entry), round == 1 ? earlier : later);
  }
  EXPECT_EQ(group.Fail(earlier).finished, earlier);
  EXPECT_EQ(group.state.tensors.Find(entry), later);
}

TEST(StagedTensorsTest, WhoseNameIsUsedAgainFailsAtOnceIfItIsAlone) {
  GroupUnderTest group(/*alone=*/true);
  const TensorPointer earlier = group.Started();
  const TensorPointer later = GroupUnderTest::NewTensor();
  group.Compute(later);
  const GroupEffects effects = group.Place(later, GroupUnderTest::NewExchange("a", 2));
  EXPECT_EQ(effects.failed_here, nullptr);
  ASSERT_EQ(effects.failed.size(), 1u);
  EXPECT_EQ(effects.failed[0].first, earlier);
}

TEST(StagedTensorsTest, FailsWhenNothingIsAtWork) {
  for (const State state : kAll) {
    GroupUnderTest group;
    const TensorPointer tensor = group.TensorIn(state);
    const GroupEffects effects = group.Fail(tensor);
    EXPECT_EQ(effects.finished, IsOver(state) ? nullptr : tensor) << static_cast<int>(state);
    EXPECT_EQ(effects.released, IsOver(state) ? nullptr : tensor);
    EXPECT_EQ(effects.wakes_waiters, !IsOver(state));
  }
}

TEST(StagedTensorsTest, FailsWithTheLastStep) {
  GroupUnderTest group;
  const TensorPointer tensor = group.Started();
  ASSERT_TRUE(tensor->BeginStep());
  ASSERT_TRUE(tensor->BeginStep());
  const GroupEffects failed = group.Fail(tensor);
  // Its stream goes on at once: a step may wait for it.
  EXPECT_EQ(failed.released, tensor);
  EXPECT_EQ(failed.finished, nullptr);
  const auto end = [&] {
    return group.Do([&](GroupEffects* effects) {
      EXPECT_FALSE(group.state.tensors.EndStep(tensor, OkStatus(), effects));
    });
  };
  EXPECT_EQ(end().finished, nullptr);
  const GroupEffects last = end();
  EXPECT_EQ(last.finished, tensor);
  EXPECT_EQ(last.finished_with.message(), "bad");
}

TEST(StagedTensorsTest, EndsWithItsLastPartOnceNothingIsAtWork) {
  GroupUnderTest group;
  const TensorPointer tensor = group.Started("a", 2);
  StagedTensors& tensors = group.state.tensors;
  const auto end_part = [&] {
    return group.Do([&](GroupEffects* effects) { tensors.EndPart(tensor, effects); }).finished;
  };
  ASSERT_TRUE(tensor->BeginStep());
  EXPECT_EQ(end_part(), nullptr);
  EXPECT_EQ(end_part(), nullptr);
  const GroupEffects effects = group.Do([&](GroupEffects* effects) {
    EXPECT_TRUE(tensors.EndStep(tensor, OkStatus(), effects));
    tensors.FinishIfDone(tensor, effects);
  });
  EXPECT_EQ(effects.finished, tensor);
  EXPECT_TRUE(effects.finished_with.ok());
  EXPECT_TRUE(effects.wakes_waiters);
  EXPECT_TRUE(tensors.empty());
}

TEST(StagedTensorsTest, ABrokenDeviceIsTheGroupsFailure) {
  GroupUnderTest group;
  const TensorPointer tensor = group.Started("a");
  const TensorPointer other = group.Started("b");
  ASSERT_TRUE(tensor->BeginStep());
  const GroupEffects effects = group.Do([&](GroupEffects* effects) {
    EXPECT_FALSE(group.state.tensors.EndStep(tensor, Internal("broken"), effects));
  });
  ASSERT_TRUE(effects.group_failure.has_value());
  EXPECT_EQ(effects.group_failure->message(), "broken");
  // One by one, after the others know: none has ended yet.
  EXPECT_EQ(effects.failed.size(), 2U);
  EXPECT_EQ(effects.finished, nullptr);
  EXPECT_EQ(tensor->state(), State::kStarted);
}

TEST(StagedTensorsTest, NothingFollowsAStepOnceTheGroupHasFailed) {
  GroupUnderTest group;
  const TensorPointer tensor = group.Started();
  ASSERT_TRUE(tensor->BeginStep());
  const GroupEffects failure = group.FailGroup();
  ASSERT_EQ(failure.failed.size(), 1U);
  const GroupEffects effects = group.Do([&](GroupEffects* effects) {
    EXPECT_FALSE(group.state.tensors.EndStep(tensor, OkStatus(), effects));
  });
  EXPECT_EQ(effects.finished, nullptr);
  EXPECT_EQ(group.Fail(tensor).finished, tensor);
}

TEST(StagedTensorsTest, TheGroupFailsOnceAndNamesEachTensor) {
  GroupUnderTest group;
  const TensorPointer tensor = group.Started();
  const GroupEffects effects = group.FailGroup();
  ASSERT_EQ(effects.failed.size(), 1U);
  EXPECT_EQ(effects.failed[0].second.message(), tensor->Name() + ": lost");
  EXPECT_TRUE(effects.wakes_waiters);
  const GroupEffects again = group.FailGroup();
  EXPECT_FALSE(again.group_failure.has_value());
  EXPECT_TRUE(again.failed.empty());
}

TEST(StagedTensorsTest, WhatIsPlacedAfterAFailureFails) {
  GroupUnderTest group;
  group.FailGroup();
  const TensorPointer tensor = GroupUnderTest::NewTensor();
  group.Compute(tensor);
  const GroupEffects effects = group.Place(tensor, group.exchange);
  EXPECT_EQ(effects.started, nullptr);
  ASSERT_EQ(effects.failed.size(), 1U);
  EXPECT_EQ(effects.failed[0].first, tensor);
  EXPECT_EQ(group.Fail(tensor).finished, tensor);
  EXPECT_TRUE(group.state.tensors.empty());
}

TEST(StagedTensorsTest, WhatHasEndedIsNotPlaced) {
  GroupUnderTest group;
  const TensorPointer tensor = GroupUnderTest::NewTensor();
  group.Fail(tensor);
  EXPECT_EQ(group.Place(tensor, group.exchange).started, nullptr);
  EXPECT_EQ(tensor->exchange, nullptr);
  EXPECT_TRUE(group.state.tensors.empty());
}

TEST(StagedTensorsTest, TheLogFindsWhatIsReadyInItsRound) {
  using Kind = LaunchEntry::Kind;
  for (const State state : kAll) {
    GroupUnderTest group;
    const TensorPointer tensor = group.TensorIn(state);
    const StagedTensors& tensors = group.state.tensors;
    const bool is_live = state == State::kStarted || state == State::kFailing;
    EXPECT_EQ(tensors.Find(Entry(Kind::kReduce)), is_live ? tensor : nullptr)
        << static_cast<int>(state);
    // It can fail before its input is computed here.
    const bool can_fail = is_live || state == State::kPlaced;
    EXPECT_EQ(tensors.Find(Entry(Kind::kFail)), can_fail ? tensor : nullptr);
    EXPECT_EQ(tensors.Find(Entry(Kind::kFail, 2)), nullptr);
  }
}

TEST(StagedTensorsTest, LeavesInOrderWhenNothingIsInFlight) {
  GroupUnderTest group;
  EXPECT_TRUE(group.state.MayLeaveInOrder());
  const TensorPointer tensor = group.Started();
  EXPECT_FALSE(group.state.MayLeaveInOrder());
  group.Fail(tensor);
  EXPECT_TRUE(group.state.MayLeaveInOrder());
  group.FailGroup();
  EXPECT_FALSE(group.state.MayLeaveInOrder());
}

TEST(GroupPhaseTest, ALostRankIsInOrderOnceTheLogsEndIsPublished) {
  GroupPhase phase;
  EXPECT_FALSE(phase.OnLost());
  phase.PublishEnd();
  EXPECT_TRUE(phase.OnLost());
  phase.EndLog();
  EXPECT_TRUE(phase.OnLost());
  EXPECT_EQ(phase.lost_count(), 3);
}

TEST(GroupPhaseTest, TheFirstFailureCounts) {
  GroupPhase phase;
  EXPECT_TRUE(phase.Fail(Internal("first")));
  EXPECT_FALSE(phase.Fail(Internal("second")));
  phase.Connect(/*shares_results=*/true);
  EXPECT_FALSE(phase.is_connected());
  EXPECT_FALSE(phase.shares_results());
  EXPECT_EQ(phase.failure().message(), "first");
}

TEST(ArrivalCountTest, HasComeWithTheLastPart) {
  ArrivalCount arrival;
  arrival.parts_left = 2;
  EXPECT_FALSE(arrival.EndPart());
  EXPECT_TRUE(arrival.EndPart());
}

}  // namespace
}  // namespace byteps

// Each state machine that docs/states.md draws: what each event does in each state. An event that
// leads nowhere from a state, by its table, changes nothing there.
#include <gtest/gtest.h>

#include <string>

#include "cc/base/testing/state_machine.h"
#include "cc/staging/state/testing/group_under_test.h"

namespace byteps {
namespace {

TEST(StateMachinesTest, Tensor) {
  using State = StagedTensor::State;
  ForEachEvent(StagedTensor::kTransitions,
               {State::kEnqueued, State::kComputed, State::kPlaced, State::kStarted,
                State::kFailing, State::kEnded},
               [](State from, const std::string& event) {
                 GroupUnderTest group;
                 const TensorPointer tensor = group.TensorIn(from);
                 ASSERT_EQ(tensor->state(), from);
                 group.Do([&](GroupEffects* effects) {
                   StagedTensors& tensors = group.state.tensors;
                   if (event == "computed") tensors.OnComputed(tensor, effects);
                   if (event == "placed") tensors.OnPlaced(tensor, group.exchange, effects);
                   if (event == "last part" && from == State::kStarted)
                     tensors.EndPart(tensor, effects);
                   if (event == "last step" && from == State::kFailing)
                     tensors.EndStep(tensor, OkStatus(), effects);
                   // Before its stages begin, nothing is at work.
                   const bool is_at_work = event == "error at work";
                   if (is_at_work && from == State::kStarted) tensor->BeginStep();
                   if (event == "error" || (is_at_work && from == State::kStarted))
                     tensors.Fail(tensor, Internal("it fails"), effects);
                 });
                 EXPECT_EQ(tensor->state(), StateAfter(StagedTensor::kTransitions, from, event))
                     << event << " in state " << static_cast<int>(from);
               });
}

TEST(StateMachinesTest, Group) {
  using State = GroupPhase::State;
  ForEachEvent(GroupPhase::kTransitions, {State::kConnecting, State::kConnected, State::kFailed},
               [](State from, const std::string& event) {
                 GroupPhase phase;
                 if (from == State::kConnected) phase.Connect(true);
                 if (from == State::kFailed) phase.Fail(Internal("first"));
                 ASSERT_EQ(phase.state(), from);
                 if (event == "connected") phase.Connect(true);
                 if (event == "Fail") phase.Fail(Internal("second"));
                 EXPECT_EQ(phase.state(), StateAfter(GroupPhase::kTransitions, from, event))
                     << event;
               });
}

TEST(StateMachinesTest, Log) {
  using State = GroupPhase::LogState;
  ForEachEvent(GroupPhase::kLogTransitions, {State::kOpen, State::kPublished, State::kEnded},
               [](State from, const std::string& event) {
                 GroupPhase phase;
                 if (from == State::kPublished) phase.PublishEnd();
                 if (from == State::kEnded) phase.EndLog();
                 ASSERT_EQ(phase.log(), from);
                 if (event == "end published") phase.PublishEnd();
                 if (event == "end followed") phase.EndLog();
                 EXPECT_EQ(phase.log(), StateAfter(GroupPhase::kLogTransitions, from, event))
                     << event;
               });
}

TEST(StateMachinesTest, Presence) {
  using State = GroupPhase::PresenceState;
  ForEachEvent(GroupPhase::kPresenceTransitions, {State::kHere, State::kLeaving, State::kGone},
               [](State from, const std::string& event) {
                 GroupPhase phase;
                 if (from == State::kLeaving) phase.Leave();
                 if (from == State::kGone) phase.Go();
                 ASSERT_EQ(phase.presence(), from);
                 const State after = StateAfter(GroupPhase::kPresenceTransitions, from, event);
                 if (event == "OnStop") phase.Leave();
                 if (event == "destroyed") phase.Go();
                 EXPECT_EQ(phase.presence(), after) << event;
               });
}

}  // namespace
}  // namespace byteps

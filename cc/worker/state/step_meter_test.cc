#include "cc/worker/state/step_meter.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <map>
#include <string>

namespace byteps {
namespace {

class StepMeterTest : public ::testing::Test {
 protected:
  void Begin(const std::string& name, int64_t now, bool is_awaited = true) {
    steps_[name] = meter_.Begin("gradient/" + name, is_awaited);
    meter_.NoteInput(steps_[name], now);
  }
  void End(const std::string& name, int64_t now) { meter_.End(steps_[name], now); }

  // "late" is computed 10 after "early", and both end at `end`.
  void Step(int64_t begin, int64_t end, bool is_awaited = true) {
    Begin("early", begin, is_awaited);
    Begin("late", begin + 10, is_awaited);
    End("early", end);
    End("late", end);
  }

  void ExpectCounters(uint64_t steps, int64_t step_ns, int64_t exposed_ns,
                      uint64_t unmeasured_steps = 0) {
    EXPECT_EQ(meter_.counters().steps, steps);
    EXPECT_EQ(meter_.counters().step_ns, step_ns);
    EXPECT_EQ(meter_.counters().exposed_ns, exposed_ns);
    EXPECT_EQ(meter_.counters().unmeasured_steps, unmeasured_steps);
  }

  StepMeter meter_;
  std::map<std::string, uint64_t> steps_;
};

TEST_F(StepMeterTest, AStepWaitsFromItsLastInputToItsLastResult) {
  Step(100, 150);
  ExpectCounters(0, 0, 0);
  Step(200, 217);
  ExpectCounters(1, 67, 7);
  Step(300, 355);
  ExpectCounters(2, 205, 52);
}

TEST_F(StepMeterTest, WhatEndsBeforeTheLastInputIsHidden) {
  Step(100, 150);
  Begin("early", 200);
  End("early", 290);
  ExpectCounters(0, 0, 0);
  Begin("late", 300);
  End("late", 304);
  ExpectCounters(1, 154, 4);
}

TEST_F(StepMeterTest, AnInputMayBeThereAfterItsExchangeHasBegun) {
  Step(100, 150);
  for (const std::string name : {"early", "late"})
    steps_[name] = meter_.Begin("gradient/" + name, true);
  meter_.NoteInput(steps_["late"], 280);
  meter_.NoteInput(steps_["early"], 270);
  meter_.NoteInput(steps_["late"], 290);
  for (const char* name : {"early", "late"}) End(name, 296);
  ExpectCounters(1, 146, 6);
}

TEST_F(StepMeterTest, OnlyGradientsAreOfSteps) {
  for (const char* name : {"gradient/dense/kernel", "gradient@train.py:12:step/0",
                           "scope/gradient/dense/kernel", "scope/gradient/embedding/rows"})
    EXPECT_EQ(meter_.Begin(name, true), 1) << name;
  for (const char* name : {"loss", "gradients are finite", "gradient", "metrics/my_gradient/total"})
    EXPECT_EQ(meter_.Begin(name, true), 0) << name;
}

TEST_F(StepMeterTest, AStepOfFewerGradientsEndsWhenTheNextOneBegins) {
  Step(100, 150);
  Begin("early", 200);
  End("early", 220);
  ExpectCounters(0, 0, 0);
  Begin("early", 300);
  ExpectCounters(1, 70, 20);
}

TEST_F(StepMeterTest, NewGradientsAreKnownFromTheirSecondStepOn) {
  for (const int64_t begin : {100, 200}) Step(begin, begin + 17);
  for (const int64_t begin : {300, 400}) {
    Begin("early", begin);
    Begin("late", begin + 10);
    Begin("unfrozen", begin + 20);
    End("early", begin + 25);
    End("late", begin + 25);
    End("unfrozen", begin + 40);
  }
  ExpectCounters(3, 100 + 108 + 115, 7 + 15 + 20);
}

TEST_F(StepMeterTest, StepsThatNobodyWaitsForHereAreNotMeasured) {
  Step(100, 150);
  Step(200, 217, /*is_awaited=*/false);
  ExpectCounters(1, 67, 0, 1);
  Step(300, 317);
  ExpectCounters(2, 167, 7, 1);
}

TEST_F(StepMeterTest, NorAreThoseThatBeginBeforeTheOneBeforeHasEnded) {
  Step(100, 150);
  Begin("early", 200);
  Begin("late", 210);
  End("early", 220);
  Begin("early", 230);
  ExpectCounters(1, 70, 0, 1);
  End("late", 260);
  End("early", 270);
  ExpectCounters(1, 70, 0, 1);
}

TEST_F(StepMeterTest, BatchesBelongToTheStepThatIsCountedNext) {
  meter_.NoteBatch(90, 8, 95);
  Step(100, 150);
  Step(160, 167);
  EXPECT_EQ(meter_.counters().samples, 0);  // the first step is not counted
  meter_.NoteBatch(20, 8, 190);
  meter_.NoteBatch(5, 4, 196);
  EXPECT_EQ(meter_.counters().samples, 0);
  Step(200, 217);
  EXPECT_EQ(meter_.counters().samples, 12);
  EXPECT_EQ(meter_.counters().input_ns, 25);
  Step(300, 317);
  EXPECT_EQ(meter_.counters().samples, 12);
  EXPECT_EQ(meter_.counters().input_ns, 25);
}

TEST_F(StepMeterTest, TheSecondStepHasItsBatch) {
  meter_.NoteBatch(90, 4, 95);
  Step(100, 150);
  meter_.NoteBatch(10, 4, 170);
  Step(200, 217);
  ExpectCounters(1, 67, 7);
  EXPECT_EQ(meter_.counters().samples, 4);
  EXPECT_EQ(meter_.counters().input_ns, 10);
}

TEST_F(StepMeterTest, NoMomentIsWaitedForTwice) {
  Step(100, 150);
  Step(200, 217);
  meter_.NoteBatch(30, 1, 227);  // began while the step before waited for its sums
  meter_.NoteBatch(40, 1, 237);  // of two datasets, at the same time
  Begin("early", 300);
  meter_.NoteBatch(50, 1, 350);  // fetched ahead
  Begin("late", 360);
  End("early", 370);
  End("late", 370);
  EXPECT_EQ(meter_.counters().input_ns, 20);
  EXPECT_EQ(meter_.counters().samples, 3);
}

TEST_F(StepMeterTest, BetweenOtherStepsTimeGoesOn) {
  Step(100, 150);
  Step(200, 217);
  for (const int64_t begin : {1000, 2000, 3000}) {
    Begin("other", begin);
    End("other", begin + 1);
  }
  // The first one might be of no step.
  ExpectCounters(3, 67 + 1784 + 1000, 7 + 1 + 1);
}

}  // namespace
}  // namespace byteps

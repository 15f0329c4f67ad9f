// How long a round waits for more workers than it needs.
#include "cc/server/state/grace_window.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

constexpr int64_t kMilli = 1000000;

TEST(GraceWindowTest, WhatIsAskedForIsTaken) {
  GraceWindow window;
  window.Begin(/*grace_ms=*/30, 5 * kMilli);
  EXPECT_TRUE(window.has_begun());
  EXPECT_EQ(window.end_ns(), 35 * kMilli);
  EXPECT_FALSE(window.IsOver(35 * kMilli - 1));
  EXPECT_TRUE(window.IsOver(35 * kMilli));
  window.EndRound();
  EXPECT_FALSE(window.has_begun());
}

TEST(GraceWindowTest, NoGraceIsOverAtOnce) {
  GraceWindow window;
  window.Begin(/*grace_ms=*/0, 5);
  EXPECT_TRUE(window.IsOver(5));
}

TEST(GraceWindowTest, AnAdaptiveOneIsTwiceTheLags) {
  GraceWindow window;
  window.Begin(kAdaptiveGrace, 1);
  EXPECT_EQ(window.end_ns(), 1 + GraceWindow::kFirstNanos);
  window.NoteLag(40 * kMilli);
  window.EndRound();
  window.Begin(kAdaptiveGrace, 1 + 10000 * kMilli);
  EXPECT_EQ(window.end_ns(), 1 + 10080 * kMilli);
  window.NoteLag(120 * kMilli);
  window.EndRound();
  window.Begin(kAdaptiveGrace, 1 + 20000 * kMilli);
  EXPECT_EQ(window.end_ns(), 1 + 20100 * kMilli) << "the mean moves by an eighth";
}

TEST(GraceWindowTest, ItIsATwentiethOfARoundAtMost) {
  GraceWindow window;
  window.Begin(kAdaptiveGrace, 1);
  window.NoteLag(900 * kMilli);
  window.EndRound();
  window.Begin(kAdaptiveGrace, 1 + 2000 * kMilli);
  EXPECT_EQ(window.end_ns(), 1 + 2100 * kMilli);
  window.NoteLag(101 * kMilli);  // no window would have helped
  window.EndRound();
  window.Begin(kAdaptiveGrace, 1 + 102000 * kMilli);
  EXPECT_EQ(window.end_ns(), 1 + (102000 + 1800) * kMilli);
}

}  // namespace
}  // namespace byteps

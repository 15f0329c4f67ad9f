#include "cc/worker/learned_order.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

TEST(LearnedOrderTest, WhatComesFirstGoesFirstUntilTheStepIsComplete) {
  LearnedOrder order;
  const int32_t first = order.NumberNewName();
  const int32_t second = order.NumberNewName();
  for (const int32_t given : {kBackwardOrder, kForwardOrder})
    EXPECT_GT(order.PriorityOf(first, given), order.PriorityOf(second, given));
  EXPECT_LT(order.PriorityInForwardOrder(first), order.PriorityInForwardOrder(second));
  EXPECT_GT(order.PriorityInForwardOrder(first), order.PriorityOf(first, kForwardOrder));
}

TEST(LearnedOrderTest, WhatThisStepNeedsGoesBeforeWhatTheNextOneNeeds) {
  LearnedOrder order;
  const int32_t first = order.NumberNewName();
  const int32_t second = order.NumberNewName();
  EXPECT_GT(order.PriorityOf(second, kBackwardOrder), order.PriorityInForwardOrder(second));
  EXPECT_GT(order.PriorityOf(second, kBackwardOrder), order.PriorityOf(first, kForwardOrder));
}

TEST(LearnedOrderTest, GivenPrioritiesStay) {
  LearnedOrder order;
  EXPECT_EQ(order.PriorityOf(order.NumberNewName(), -7), -7);
}

TEST(LearnedOrderTest, TheLastOfAStepIsKnownFromTheSecondStepOn) {
  LearnedOrder order;
  for (const int32_t number : {1, 2, 3}) EXPECT_FALSE(order.CompletesStep(number));
  for (const int32_t number : {1, 2}) EXPECT_FALSE(order.CompletesStep(number));
  EXPECT_TRUE(order.CompletesStep(3));
}

}  // namespace
}  // namespace byteps

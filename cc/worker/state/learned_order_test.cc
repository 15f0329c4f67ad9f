#include "cc/worker/state/learned_order.h"

#include <gtest/gtest.h>

#include <string>

namespace byteps {
namespace {

// Uses `names` new names, each at the position that `position_of` says; the first is made first.
template <typename F>
void UseNames(LearnedOrder* order, int32_t names, F position_of) {
  for (int32_t number = 1; number <= names; ++number) {
    EXPECT_EQ(order->NumberNewName(), number);
    order->PriorityOf(number, ForwardOrderAt(position_of(number)));
  }
  order->NoteStep(0);
}

TEST(LearnedOrderTest, WhatComesFirstGoesFirstUntilTheStepIsComplete) {
  LearnedOrder order;
  const int32_t first = order.NumberNewName();
  const int32_t second = order.NumberNewName();
  for (const int32_t given : {kBackwardOrder, kForwardOrder})
    EXPECT_GT(order.PriorityOf(first, given), order.PriorityOf(second, given));
  const int32_t of_first = order.PriorityOf(first, kForwardOrder);
  const int32_t of_second = order.PriorityOf(second, kForwardOrder);
  EXPECT_LT(order.PriorityInForwardOrder(of_first), order.PriorityInForwardOrder(of_second));
  EXPECT_GT(order.PriorityInForwardOrder(of_first), of_first);
}

TEST(LearnedOrderTest, WhatThisStepNeedsGoesBeforeWhatTheNextOneNeeds) {
  LearnedOrder order;
  const int32_t first = order.NumberNewName();
  const int32_t second = order.NumberNewName();
  const int32_t needed_now = order.PriorityOf(second, kBackwardOrder);
  const int32_t needed_next = order.PriorityOf(first, kForwardOrder);
  EXPECT_GT(needed_now, needed_next);
  EXPECT_GT(needed_now, order.PriorityInForwardOrder(needed_next));
}

TEST(LearnedOrderTest, GivenPrioritiesStay) {
  LearnedOrder order;
  for (const int32_t given : {-7, 0, 12, ForwardOrderAt(kMostForwardPositions) + 1})
    EXPECT_EQ(order.PriorityOf(order.NumberNewName(), given), given);
}

TEST(LearnedOrderTest, TheLastOfAStepIsKnownFromTheSecondStepOn) {
  LearnedOrder order;
  for (const int32_t number : {1, 2, 3}) EXPECT_FALSE(order.CompletesStep(number));
  for (const int32_t number : {1, 2}) EXPECT_FALSE(order.CompletesStep(number));
  EXPECT_TRUE(order.CompletesStep(3));
}

TEST(LearnedOrderTest, PositionsDecideBetweenThoseThatComeInAnyOrder) {
  LearnedOrder order;
  // Pairs in the wrong order, as a layer's two gradients may come.
  UseNames(&order, 8, [](int32_t number) { return 8 - (number - 1) / 2 * 2 - number % 2; });
  for (int32_t number = 1; number < 8; ++number) {
    const int32_t made_first = order.PriorityInForwardOrder(-number);
    const int32_t made_next = order.PriorityInForwardOrder(-number - 1);
    EXPECT_EQ(made_first < made_next, number % 2 == 0) << number;
  }
}

TEST(LearnedOrderTest, PositionsThatContradictWhatIsMadeAreNotBelieved) {
  LearnedOrder order;
  UseNames(&order, 8, [](int32_t number) { return number; });
  for (int32_t number = 1; number < 8; ++number)
    EXPECT_LT(order.PriorityInForwardOrder(-number), order.PriorityInForwardOrder(-number - 1));
}

TEST(LearnedOrderTest, HoldsBackWhatTheLinksDoNotCarryInTime) {
  LearnedOrder order;
  constexpr uint32_t kParts = 100;
  const auto early_parts = [&](uint64_t key) {
    uint32_t early = 0;
    for (uint32_t part = 0; part < kParts; ++part)
      early += order.PriorityOfPart(-1, key, part) == -1 ? 1 : 0;
    return early;
  };
  order.NumberNewName();
  order.NoteEarly(1);
  order.NoteStep(9);
  EXPECT_EQ(early_parts(1), kParts) << "the first step says nothing";
  order.NoteEarly(60);
  order.NoteStep(40);
  for (const uint64_t key : {1ull, 500ull, ~0ull}) EXPECT_NEAR(early_parts(key), 60, 3);
  order.NoteEarly(60);
  order.NoteStep(0);
  EXPECT_EQ(early_parts(1), kParts);
}

TEST(LearnedOrderTest, StepsThatOverlapUseAnEighthOfTheirBytesButAQuarterOfTheCredit) {
  LearnedOrder order;
  EXPECT_EQ(order.CreditOfOverlap(1000), 1000u) << "none does";
  order.NoteEarly(2000);
  order.NoteStep(2000);
  EXPECT_EQ(order.CreditOfOverlap(1000), 500u);
  EXPECT_EQ(order.CreditOfOverlap(400), 400u) << "never more";
  EXPECT_EQ(order.CreditOfOverlap(4000), 1000u) << "the links must not idle";
}

TEST(LearnedOrderTest, ASmallTensorsOnePartIsHeldBackAsOften) {
  LearnedOrder order;
  order.NumberNewName();
  for (int step = 0; step < 2; ++step) {
    order.NoteEarly(1);
    order.NoteStep(3);
  }
  int early = 0;
  for (int name = 0; name < 1000; ++name) {
    const uint64_t key = KeyOfName("gradient/layer_" + std::to_string(name) + "/bias");
    early += order.PriorityOfPart(-1, key, 0) == -1 ? 1 : 0;
  }
  EXPECT_NEAR(early, 250, 60);
}

TEST(LearnedOrderTest, WhatIsHeldBackGoesLastAndInForwardOrder) {
  LearnedOrder order;
  order.NumberNewName();
  order.NumberNewName();
  for (int step = 0; step < 2; ++step) order.NoteStep(1);
  const int32_t of_first = order.PriorityOfPart(order.PriorityOf(1, kForwardOrder), 0, 0);
  const int32_t of_second = order.PriorityOfPart(order.PriorityOf(2, kForwardOrder), 0, 0);
  EXPECT_LT(of_first, of_second);
  EXPECT_LT(of_second, order.PriorityOf(2, kForwardOrder));
}

}  // namespace
}  // namespace byteps

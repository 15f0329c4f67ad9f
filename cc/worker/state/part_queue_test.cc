#include "cc/worker/state/part_queue.h"

#include <gtest/gtest.h>

#include <vector>

namespace byteps {
namespace {

PartTask Task(uint32_t part, uint64_t bytes, int32_t priority = 0) {
  return {nullptr, part, bytes, priority};
}

std::vector<uint32_t> PopAll(PartQueue& queue) {
  std::vector<uint32_t> order;
  PartTask task;
  while (queue.Pop(&task)) order.push_back(task.part);
  return order;
}

TEST(PartQueueTest, LeavesByPriorityThenInOrder) {
  PartQueue queue(1000);
  queue.Push(Task(0, 1, -5));
  queue.Push(Task(1, 1, 7));
  queue.Push(Task(2, 1, -5));
  queue.Push(Task(3, 1, 7));
  queue.Push(Task(4, 1, 0));
  EXPECT_EQ(PopAll(queue), (std::vector<uint32_t>{1, 3, 4, 0, 2}));
}

TEST(PartQueueTest, ExtremePrioritiesAreOrdered) {
  PartQueue queue(1000);
  queue.Push(Task(0, 1, INT32_MIN));
  queue.Push(Task(1, 1, INT32_MAX));
  queue.Push(Task(2, 1, 0));
  EXPECT_EQ(PopAll(queue), (std::vector<uint32_t>{1, 2, 0}));
}

TEST(PartQueueTest, PreferredOnesGoFirstInTheOrderInWhichTheyWere) {
  PartQueue queue(1000);
  queue.Push(Task(9, 1001, 9));
  for (uint32_t part = 0; part < 6; ++part) queue.Push(Task(part, 1, part < 3 ? 1 : 5));
  EXPECT_TRUE(queue.Prefer(nullptr, 2));
  EXPECT_TRUE(queue.Prefer(nullptr, 4));
  EXPECT_TRUE(queue.Prefer(nullptr, 0));
  EXPECT_TRUE(queue.Prefer(nullptr, 2)) << "again, which changes nothing";
  EXPECT_FALSE(queue.Prefer(nullptr, 6)) << "not waiting";
  queue.SetCredit(2000);
  EXPECT_EQ(PopAll(queue), (std::vector<uint32_t>{2, 4, 0, 9, 3, 5, 1}));
}

TEST(PartQueueTest, RearrangedOnesLeaveByTheirNewPriorities) {
  PartQueue queue(8);
  for (uint32_t part = 0; part < 6; ++part) queue.Push(Task(part, 1, -static_cast<int>(part)));
  for (int32_t part = 0; part < 6; ++part) queue.Push(Task(10 + part, 1, -part));
  EXPECT_TRUE(queue.Prefer(nullptr, 14));
  queue.Rearrange([](const PartTask& task) { return task.part == 2 ? 9 : task.priority + 1; });
  queue.SetCredit(1000);
  EXPECT_EQ(PopAll(queue), (std::vector<uint32_t>{14, 2, 0, 10, 1, 11, 12, 3, 13, 4, 5, 15}));
}

TEST(PartQueueTest, WhatLeavesWithTheNextCreditIsNotPreferred) {
  PartQueue queue(10);
  for (uint32_t part = 0; part < 5; ++part) queue.Push(Task(part, 4));
  EXPECT_TRUE(queue.Prefer(nullptr, 2)) << "it waits";
  EXPECT_TRUE(queue.Prefer(nullptr, 3));
  queue.SetCredit(100);
  EXPECT_EQ(PopAll(queue), (std::vector<uint32_t>{3, 0, 1, 2, 4}));
}

TEST(PartQueueTest, WhoIsAheadIsAdmittedHalfOfTheCredit) {
  PartQueue queue(10);
  queue.NoteUnanswered(15);
  for (uint32_t part = 0; part < 8; ++part) queue.Push(Task(part, 2));
  EXPECT_EQ(PopAll(queue).size(), 5u);
  queue.ReturnCredit(10);
  queue.NoteUnanswered(1);
  EXPECT_EQ(PopAll(queue).size(), 2u);
  queue.NoteAnswered(1);
  EXPECT_EQ(PopAll(queue).size(), 1u) << "only three were left";
}

TEST(PartQueueTest, CreditBoundsTheBytesOnTheWay) {
  PartQueue queue(10);
  for (uint32_t part = 0; part < 5; ++part) queue.Push(Task(part, 4));
  EXPECT_EQ(PopAll(queue), (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(queue.bytes_on_the_way(), 8u);
  queue.ReturnCredit(4);
  EXPECT_EQ(PopAll(queue), (std::vector<uint32_t>{2}));
  queue.ReturnCredit(8);
  EXPECT_EQ(PopAll(queue), (std::vector<uint32_t>{3, 4}));
}

TEST(PartQueueTest, APartLargerThanTheCreditLetsShortOnesFollow) {
  PartQueue queue(10);
  queue.Push(Task(0, 100));
  queue.Push(Task(1, 1));
  queue.Push(Task(2, 4));
  queue.Push(Task(3, 1));
  EXPECT_EQ(PopAll(queue), (std::vector<uint32_t>{0, 1, 2}));
  queue.ReturnCredit(1);
  EXPECT_EQ(PopAll(queue), (std::vector<uint32_t>{3}));
  queue.Push(Task(4, 100));
  EXPECT_EQ(PopAll(queue), (std::vector<uint32_t>{})) << "one long part at a time";
  queue.ReturnCredit(105);
  EXPECT_EQ(PopAll(queue), (std::vector<uint32_t>{4}));
  EXPECT_EQ(queue.bytes_on_the_way(), 100u);
}

TEST(PartQueueTest, WhatTheServersKeepBackDoesNotHoldALargePart) {
  PartQueue queue(10, 2);
  queue.Push(Task(0, 6));
  EXPECT_EQ(PopAll(queue), (std::vector<uint32_t>{0}));
  queue.Push(Task(1, 100));
  queue.ReturnCredit(3);
  EXPECT_EQ(PopAll(queue), (std::vector<uint32_t>{})) << "a part is in flight";
  queue.ReturnCredit(1);
  EXPECT_EQ(PopAll(queue), (std::vector<uint32_t>{1}));
}

TEST(PartQueueTest, ALargePartIsNotStarvedBySmallOnes) {
  PartQueue queue(10);
  queue.Push(Task(0, 6));
  EXPECT_EQ(PopAll(queue), (std::vector<uint32_t>{0}));
  queue.Push(Task(1, 8, 1));
  queue.Push(Task(2, 1, 0));
  EXPECT_EQ(PopAll(queue), (std::vector<uint32_t>{}));
  queue.ReturnCredit(6);
  EXPECT_EQ(PopAll(queue), (std::vector<uint32_t>{1, 2}));
}

TEST(PartQueueTest, EmptyPartsNeedNoCreditWhenNothingIsOnTheWay) {
  PartQueue queue(1);
  for (uint32_t part = 0; part < 3; ++part) queue.Push(Task(part, 0));
  EXPECT_EQ(PopAll(queue), (std::vector<uint32_t>{0, 1, 2}));
}

TEST(PartQueueTest, ReturningTooMuchDoesNotRaiseTheLimit) {
  PartQueue queue(10);
  queue.ReturnCredit(1000);
  for (uint32_t part = 0; part < 5; ++part) queue.Push(Task(part, 4));
  EXPECT_EQ(PopAll(queue).size(), 2u);
}

}  // namespace
}  // namespace byteps

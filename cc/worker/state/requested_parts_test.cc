// A worker pushes next what its servers ask for.
#include "cc/worker/state/testing/state_under_test.h"

namespace byteps {
namespace {

constexpr uint32_t kParts = 8;

// The server asks for a part of a round when another has arrived.
struct Question {
  uint64_t after_round;
  uint32_t after_part;
  uint64_t round;
  uint32_t part;
};

// The order in which a worker pushes the parts of two rounds. One is in flight at a time.
std::vector<std::vector<uint32_t>> Order(const std::vector<Question>& questions) {
  JobDescription job = StateUnderTest::Job();
  job.options.flow.credit_bytes = 1000;
  StateUnderTest worker(job);
  worker.OpenAll();
  std::vector<std::vector<uint32_t>> order(2);
  for (uint64_t round = 0; round < 2; ++round) {
    Effects effects;
    const auto exchange = worker.Placed("t", kParts * 250, &effects);
    while (!exchange->finished) {
      const std::vector<uint32_t> pushed = PartsOf(effects);
      EXPECT_EQ(pushed.size(), 1u);
      if (pushed.size() != 1) return order;
      const uint32_t part = pushed[0];
      order[round].push_back(part);
      FrameHeader question;
      question.type = FrameType::kRequested;
      question.key = exchange->entry->key;
      for (const Question& each : questions) {
        if (each.after_round != round || each.after_part != part) continue;
        question.round = each.round;
        question.part = each.part;
        worker.Receive(part % 2, question);
      }
      FrameHeader reply = StateUnderTest::Reply(*exchange, part);
      reply.credit_bytes = 1000;
      effects = worker.Receive(part % 2, reply);
    }
  }
  return order;
}

TEST(RequestedPartsTest, InOrderIfNobodyAsks) {
  const std::vector<uint32_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(Order({}), (std::vector<std::vector<uint32_t>>{all, all}));
}

TEST(RequestedPartsTest, PartsThatWaitGoNext) {
  const auto order = Order({{0, 0, 0, 6}, {0, 0, 0, 4}, {0, 6, 0, 5}});
  EXPECT_EQ(order[0], (std::vector<uint32_t>{0, 6, 4, 5, 1, 2, 3, 7}));
}

TEST(RequestedPartsTest, PartsOfTheNextRoundGoFirstInIt) {
  const auto order = Order({{0, 2, 1, 6}, {0, 7, 1, 3}});
  EXPECT_EQ(order[1], (std::vector<uint32_t>{6, 3, 0, 1, 2, 4, 5, 7}));
}

TEST(RequestedPartsTest, WhatIsNotThereIsNoMatter) {
  const auto order = Order({{0, 3, 0, 1}, {0, 3, 0, UINT32_MAX}, {0, 3, 9, 2}, {1, 0, 0, 5}});
  const std::vector<uint32_t> all = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_EQ(order, (std::vector<std::vector<uint32_t>>{all, all}));
}

}  // namespace
}  // namespace byteps

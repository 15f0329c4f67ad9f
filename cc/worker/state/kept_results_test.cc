#include "cc/worker/state/kept_results.h"

#include "cc/worker/state/testing/state_under_test.h"

namespace byteps {
namespace {

class KeptResultsTest : public testing::Test {
 protected:
  void SetUp() override {
    worker_.OpenAll();
    exchange_ = worker_.Placed("a");
    for (const uint32_t part : {0u, 1u})
      worker_.Receive(static_cast<int32_t>(part), StateUnderTest::Reply(*exchange_, part));
  }

  const KeyTable::Key& key() const { return *worker_.state.keys.Find("a"); }
  Effects Report() {
    return worker_.Do([&](Effects* at) { worker_.state.kept_results.ReportResults(at); });
  }

  StateUnderTest worker_;
  std::shared_ptr<Exchange> exchange_;
};

TEST_F(KeptResultsTest, ALaterReplySaysThatAllHaveAResult) {
  EXPECT_EQ(key().last, exchange_);
  const auto next = worker_.Placed("a");
  FrameHeader reply = StateUnderTest::Reply(*next, 0);
  reply.watermark = exchange_->round;
  worker_.Receive(0, reply);
  EXPECT_EQ(key().last, exchange_) << "of the rounds before this one";
  reply = StateUnderTest::Reply(*next, 1);
  reply.watermark = exchange_->round + 1;
  EXPECT_GE(worker_.Receive(1, reply).dropped.size(), 1u);
  EXPECT_NE(key().last, exchange_);
}

TEST_F(KeptResultsTest, WhatIsIdleIsReportedOnceAndDroppedWhenAllHaveIt) {
  EXPECT_TRUE(Report().messages.empty());
  worker_.now_ns += int64_t{6} * 1000000000;
  const Effects idle = Report();
  ASSERT_EQ(idle.messages.size(), 1u);
  const auto& progress = std::get<ResultProgress>(idle.messages[0]);
  ASSERT_EQ(progress.tensors.size(), 1u);
  EXPECT_EQ(progress.tensors[0].next_round, 1u);
  EXPECT_TRUE(Report().messages.empty());
  EXPECT_EQ(key().last, exchange_);
  const Effects all_have =
      worker_.Do([&](Effects* at) { worker_.state.kept_results.OnResultProgress(progress, at); });
  EXPECT_EQ(all_have.dropped.size(), 1u);
  EXPECT_EQ(key().last, nullptr);
}

}  // namespace
}  // namespace byteps

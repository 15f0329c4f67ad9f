#include "cc/worker/state/watch.h"

#include "cc/worker/state/testing/state_under_test.h"

namespace byteps {
namespace {

constexpr int64_t kSecond = 1000000000;

class WatchTest : public testing::Test {
 protected:
  static JobDescription Job() {
    JobDescription job = StateUnderTest::Job();
    job.options.timeouts.operation_timeout = 100;
    job.options.timeouts.stall_warning = 10;
    job.options.timeouts.stall_shutdown = 50;
    return job;
  }
  Effects Tick(int64_t after_seconds, bool is_asked_for = false, Status* status = nullptr) {
    worker_.now_ns += after_seconds * kSecond;
    return worker_.Do([&](Effects* effects) {
      const Status ticked = worker_.state.OnTick(is_asked_for, effects);
      if (status != nullptr) *status = ticked;
    });
  }

  StateUnderTest worker_{Job()};
};

TEST_F(WatchTest, WhatIsInTimeIsLeftAlone) {
  worker_.Placed("a");
  const Effects effects = Tick(9);
  EXPECT_TRUE(effects.finished.empty());
  EXPECT_TRUE(effects.messages.empty());
}

TEST_F(WatchTest, AStallIsAskedAboutFromTimeToTime) {
  worker_.Placed("a");
  EXPECT_TRUE(Tick(9).messages.empty());
  const Effects due = Tick(2);
  ASSERT_EQ(due.messages.size(), 1u);
  EXPECT_EQ(std::get<StallQuery>(due.messages[0]).tensors[0].name, "a");
  EXPECT_TRUE(Tick(9).messages.empty());
  EXPECT_EQ(Tick(2).messages.size(), 1u);
}

TEST_F(WatchTest, AReportThatSomebodyWantsIsDueAtOnce) {
  const Effects effects = Tick(0, /*is_asked_for=*/true);
  ASSERT_EQ(effects.messages.size(), 1u);
  EXPECT_TRUE(std::get<StallQuery>(effects.messages[0]).wants_text);
}

TEST_F(WatchTest, AStallEndsTheJobOnceItIsReported) {
  worker_.Placed("a");
  Status status;
  Tick(51, false, &status);
  EXPECT_TRUE(status.ok());  // the report is to come
  worker_.state.watch.NoteLogged({worker_.now_ns, 0});
  Tick(0, false, &status);
  EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
}

TEST_F(WatchTest, WhatTakesTooLongEndsWithAnErrorThatSaysWhatIsMissing) {
  worker_.OpenAll();
  const auto placed = worker_.Placed("placed");
  worker_.Receive(0, StateUnderTest::Reply(*placed, 0));
  worker_.Begin(worker_.NewExchange(StateUnderTest::Tensor("begun")));
  const Effects effects = Tick(101);
  ASSERT_EQ(effects.finished.size(), 2u);
  for (const auto& [exchange, status] : effects.finished) {
    EXPECT_EQ(status.code(), StatusCode::kDeadlineExceeded);
    const char* const what =
        exchange == placed ? "1 of 2 parts have no result" : "has not placed it";
    EXPECT_NE(status.message().find(what), std::string::npos) << status.message();
  }
}

TEST_F(WatchTest, OthersLearnWhatThisWorkerHasSentAndDoes) {
  const auto ask = [&] {
    StallQuery query;
    query.tensors.push_back({"a", 0, "", 0});
    const Effects effects =
        worker_.Do([&](Effects* at) { worker_.state.watch.OnStallQuery(query, at); });
    return std::get<StallAnswer>(effects.messages.at(0));
  };
  EXPECT_EQ(ask().sent[0], 0);
  EXPECT_EQ(ask().doing, "has not exchanged anything yet");
  const auto exchange = worker_.Placed("a");
  EXPECT_EQ(ask().sent[0], 1);
  EXPECT_NE(ask().doing.find("waits for tensor \"a\", round 0"), std::string::npos);
  worker_.Do([&](Effects* at) { worker_.state.exchanges.Finish(exchange, OkStatus(), at); });
  EXPECT_NE(ask().doing.find("waits for nothing"), std::string::npos);
}

TEST_F(WatchTest, AReportNamesTheServersThatOweResults) {
  worker_.OpenAll();
  worker_.Placed("a");
  worker_.Break(1);
  StallNotice notice;
  notice.text = "it takes long";
  const std::string text = worker_.state.watch.OnStallNotice(notice, {worker_.now_ns, 0});
  EXPECT_NE(text.find("server 0 at 10.0.0.2:2 owes 1 part of results\n"), std::string::npos);
  EXPECT_NE(text.find("server 1 at 10.0.0.3:3 owes 1 part of results and is not connected"),
            std::string::npos);
}

TEST_F(WatchTest, ResultsThatNobodyAsksForAreReportedOnce) {
  worker_.OpenAll();
  const auto exchange = worker_.Placed("a");
  worker_.Do([&](Effects* at) { worker_.state.exchanges.Finish(exchange, OkStatus(), at); });
  EXPECT_TRUE(Tick(4).messages.empty());
  const Effects due = Tick(2);
  ASSERT_EQ(due.messages.size(), 1u);
  EXPECT_EQ(std::get<ResultProgress>(due.messages[0]).tensors[0].next_round, 1u);
  EXPECT_TRUE(Tick(9).messages.empty());
}

}  // namespace
}  // namespace byteps

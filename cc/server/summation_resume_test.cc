// What a worker may find when a connection of its comes again: each byte counts once (protocol rule
// 13).
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cc/server/testing/fake_workers.h"
#include "cc/van/buffer_sink.h"
#include "cc/wire/control_frame.h"

namespace byteps {
namespace {

class ResumeTest : public ::testing::Test {
 protected:
  ResumeTest() : workers_(2) { workers_.Add(entry_); }

  void Break(int32_t worker) {
    workers_.service.OnClosed(*workers_.connections[worker], Unavailable("reset by peer"));
  }
  // The next connection in the place of the one that broke, or is about to.
  std::shared_ptr<FakeConnection> ComeAgain(int32_t worker) {
    auto connection = std::make_shared<FakeConnection>(worker, /*again=*/true);
    workers_.service.OnOpen(connection);
    old_.push_back(workers_.connections[worker]);
    return workers_.connections[worker] = connection;
  }
  Status Ask(int32_t worker, uint64_t round) {
    const OutgoingFrame frame = ControlFrame(ResumeQuery{{{entry_.key, 0, round}}});
    FakePush query(
        &workers_.service, workers_.connections[worker].get(), frame.header,
        std::string(static_cast<const char*>(frame.payload), frame.header.payload_bytes));
    return query.DeliverAll();
  }
  // What the service said, and has sent again.
  ResumeAnswer TakeAnswer(int32_t worker, std::vector<SentFrame>* replies) {
    ControlMessage message;
    bool is_answered = false;
    for (SentFrame& frame : workers_.connections[worker]->TakeSent()) {
      if (frame.header.type == FrameType::kControl) {
        EXPECT_TRUE(DecodeControl(frame.payload, &message).ok());
        is_answered = true;
      } else if (frame.header.type == FrameType::kReply) {
        replies->push_back(std::move(frame));
      }
    }
    EXPECT_TRUE(is_answered);
    return is_answered ? std::get<ResumeAnswer>(message) : ResumeAnswer();
  }

  const TableEntry entry_ = Entry(Tensor("t", DType::kFloat32, {3}));
  const std::string payload_ = BytesOf<float>({1, 2, 3});
  const std::vector<float> sum_ = {2, 4, 6};
  FakeWorkers workers_;
  std::vector<std::shared_ptr<FakeConnection>> old_;
  std::vector<SentFrame> replies_;
};

TEST_F(ResumeTest, APushGoesOnWhereItWasCutOff) {
  FakePush cut_off = workers_.NewPush(entry_, 1, 0, payload_);
  ASSERT_TRUE(cut_off.Begin().ok());
  cut_off.Feed(6);  // in the middle of an element
  Break(1);
  workers_.Push(entry_, 0, 0, payload_);
  EXPECT_TRUE(workers_.TakeReplies(0).empty()) << "the round waits for worker 1";
  ComeAgain(1);
  ASSERT_TRUE(Ask(1, 0).ok());
  const ResumeAnswer answer = TakeAnswer(1, &replies_);
  ASSERT_EQ(answer.incomplete.size(), 1u);
  EXPECT_EQ(answer.incomplete[0].received_bytes, 6u);
  EXPECT_TRUE(replies_.empty());
  FrameHeader header = FakeWorkers::Header(entry_, 1, 0, payload_);
  header.payload_offset = 6;
  header.payload_bytes -= 6;
  FakePush rest(&workers_.service, workers_.connections[1].get(), header, payload_.substr(6));
  ASSERT_TRUE(rest.DeliverAll().ok());
  EXPECT_EQ(workers_.TakeReply(0).values<float>(), sum_);
  EXPECT_EQ(workers_.TakeReply(1).values<float>(), sum_);
  EXPECT_EQ(workers_.service.counters().pushed_bytes, 2 * payload_.size());
}

TEST_F(ResumeTest, APushThatNeverArrivedBeginsAnew) {
  Break(1);
  ComeAgain(1);
  ASSERT_TRUE(Ask(1, 0).ok());
  const ResumeAnswer answer = TakeAnswer(1, &replies_);
  ASSERT_EQ(answer.incomplete.size(), 1u);
  EXPECT_EQ(answer.incomplete[0].received_bytes, 0u);
  workers_.Push(entry_, 1, 0, payload_);
  workers_.Push(entry_, 0, 0, payload_);
  EXPECT_EQ(workers_.TakeReply(1).values<float>(), sum_);
}

TEST_F(ResumeTest, ALostReplyIsSentAgainAlsoWhenOthersAreInTheNextRound) {
  workers_.Push(entry_, 0, 0, payload_);
  workers_.Push(entry_, 1, 0, payload_);
  workers_.TakeReply(1);  // in flight
  Break(1);
  workers_.Push(entry_, 0, 1, payload_);
  ComeAgain(1);
  ASSERT_TRUE(Ask(1, 0).ok());
  EXPECT_TRUE(TakeAnswer(1, &replies_).incomplete.empty());
  ASSERT_EQ(replies_.size(), 1u);
  EXPECT_EQ(replies_[0].header.round, 0u);
  EXPECT_EQ(replies_[0].values<float>(), sum_);
}

TEST_F(ResumeTest, AnErrorThatWasLostIsSentAgain) {
  workers_.Push(entry_, 1, 0, payload_);
  workers_.service.OnWorkerLost(0, Unavailable("worker 0 died"));
  workers_.TakeReply(1);
  Break(1);
  ComeAgain(1);
  ASSERT_TRUE(Ask(1, 0).ok());
  EXPECT_TRUE(TakeAnswer(1, &replies_).incomplete.empty());
  ASSERT_EQ(replies_.size(), 1u);
  EXPECT_EQ(replies_[0].header.status, StatusCode::kUnavailable);
}

TEST_F(ResumeTest, APushThatIsWholeIsAnsweredOnce) {
  workers_.Push(entry_, 1, 0, payload_);
  Break(1);
  ComeAgain(1);
  ASSERT_TRUE(Ask(1, 0).ok());
  EXPECT_TRUE(TakeAnswer(1, &replies_).incomplete.empty());
  EXPECT_TRUE(replies_.empty());
  workers_.Push(entry_, 0, 0, payload_);
  EXPECT_EQ(workers_.TakeReply(1).values<float>(), sum_);
}

// The worker has noticed the break, this side has not: what still arrives over the old connection
// counts, so that the answer waits for its end.
TEST_F(ResumeTest, TheAnswerWaitsForTheEndOfTheConnectionBefore) {
  FakePush cut_off = workers_.NewPush(entry_, 1, 0, payload_);
  ASSERT_TRUE(cut_off.Begin().ok());
  workers_.connections[1]->ExpectClose();
  ComeAgain(1);
  ASSERT_TRUE(Ask(1, 0).ok());
  EXPECT_TRUE(workers_.connections[1]->TakeSent().empty());
  cut_off.Feed(4);
  workers_.service.OnClosed(*old_[0], Unavailable("another connection has taken its place"));
  const ResumeAnswer answer = TakeAnswer(1, &replies_);
  ASSERT_EQ(answer.incomplete.size(), 1u);
  EXPECT_EQ(answer.incomplete[0].received_bytes, 4u);
}

TEST_F(ResumeTest, AGapAndAnOverlapAreRefused) {
  FakePush cut_off = workers_.NewPush(entry_, 1, 0, payload_);
  ASSERT_TRUE(cut_off.Begin().ok());
  cut_off.Feed(4);
  Break(1);
  ComeAgain(1);
  ASSERT_TRUE(Ask(1, 0).ok());
  FrameHeader header = FakeWorkers::Header(entry_, 1, 0, payload_);
  header.payload_offset = 8;
  header.payload_bytes -= 8;
  FakePush gap(&workers_.service, workers_.connections[1].get(), header, payload_.substr(8));
  EXPECT_EQ(gap.Begin().code(), StatusCode::kInvalidArgument);
}

TEST_F(ResumeTest, AnotherPushThanTheOneThatWasCutOffIsRefused) {
  const TableEntry longer = Entry(Tensor("t", DType::kFloat32, {3000}), 1);
  workers_.Add(longer);
  FakePush cut_off = workers_.NewPush(entry_, 1, 0, payload_);
  ASSERT_TRUE(cut_off.Begin().ok());
  cut_off.Feed(4);
  Break(1);
  ComeAgain(1);
  ASSERT_TRUE(Ask(1, 0).ok());
  FrameHeader header = FakeWorkers::Header(longer, 1, 0, std::string(12000, '\1'));
  header.payload_offset = 4;
  header.payload_bytes -= 4;
  EXPECT_EQ(workers_.NewPush(header, 1).Begin().code(), StatusCode::kInvalidArgument);
}

// One of its connections may break before this side has seen it open: the server is the same.
// Its exchange has failed while the question waited, and the next round went over the other path.
TEST_F(ResumeTest, AQuestionThatANewerPushHasOvertakenIsLate) {
  for (const TensorDescription& tensor :
       {Tensor("sum", DType::kFloat32, {3}),
        Tensor("store", DType::kFloat32, {3}, ExchangeKind::kStore),
        Tensor("table", DType::kUInt8, {-1}, ExchangeKind::kTable)}) {
    const TableEntry entry = Entry(tensor);
    workers_.Add(entry);
    workers_.Push(entry, 0, 0, payload_);
    const auto first = workers_.connections[0];
    const auto second = std::make_shared<FakeConnection>(0, /*again=*/false, /*path=*/1);
    workers_.service.OnOpen(second);
    workers_.connections[0] = second;
    workers_.Push(entry, 0, 1, payload_);
    workers_.connections[0] = first;
    Break(0);
    ComeAgain(0);
    const OutgoingFrame frame = ControlFrame(ResumeQuery{{{entry.key, 0, 0}}});
    FakePush query(
        &workers_.service, workers_.connections[0].get(), frame.header,
        std::string(static_cast<const char*>(frame.payload), frame.header.payload_bytes));
    const Status status = query.DeliverAll();
    EXPECT_TRUE(status.ok()) << entry.tensor.name << ": " << status.ToString();
    workers_.service.OnClosed(*second, Unavailable("reset by peer"));
  }
}

TEST_F(ResumeTest, WhoIsKnownByAnotherPathMayComeAgain) {
  constexpr uint32_t kOther = 1;
  FakeConnection again(1, /*again=*/true, kOther);
  EXPECT_TRUE(workers_.service.CheckReturn(again.peer()).ok());
  const auto connection = std::make_shared<FakeConnection>(1, /*again=*/true, kOther);
  workers_.service.OnOpen(connection);
  workers_.connections[1] = connection;
  ASSERT_TRUE(Ask(1, 0).ok());
  const ResumeAnswer answer = TakeAnswer(1, &replies_);
  ASSERT_EQ(answer.incomplete.size(), 1u);
  EXPECT_EQ(answer.incomplete[0].received_bytes, 0u);
}

TEST_F(ResumeTest, NobodyPushesBeforeTheAnswerOrGoesOnWithoutOne) {
  Break(1);
  ComeAgain(1);
  EXPECT_EQ(workers_.NewPush(entry_, 1, 0, payload_).Begin().code(), StatusCode::kInvalidArgument);
  FrameHeader header = FakeWorkers::Header(entry_, 0, 0, payload_);
  header.payload_offset = 4;
  header.payload_bytes -= 4;
  EXPECT_EQ(workers_.NewPush(header, 0).Begin().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Ask(0, 0).code(), StatusCode::kInvalidArgument) << "its connection has not broken";
}

}  // namespace
}  // namespace byteps

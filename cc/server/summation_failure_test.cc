// What the service says when workers disagree, break the protocol, leave or die.
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "cc/server/summation_service.h"
#include "cc/server/testing/fake_workers.h"

namespace byteps {
namespace {

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The reply is an error with `code`, and its text has all of `parts`.
void ExpectError(const SentFrame& reply, StatusCode code, const std::vector<std::string>& parts) {
  EXPECT_EQ(reply.header.type, FrameType::kReply);
  EXPECT_EQ(reply.header.status, code) << reply.payload;
  for (const std::string& part : parts) EXPECT_TRUE(Contains(reply.payload, part)) << reply.payload;
}

const std::string kTwelveFloats = BytesOf<float>({1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12});

class DisagreementTest : public testing::Test {
 protected:
  DisagreementTest() : workers_(3) {
    workers_.Add(wide_);
    workers_.Add(tall_);
  }
  void ExpectRoundWorks(uint64_t round) {
    for (int worker = 0; worker < 3; ++worker) workers_.Push(wide_, worker, round, kTwelveFloats);
    for (int worker = 0; worker < 3; ++worker) {
      const SentFrame reply = workers_.TakeReply(worker);
      EXPECT_EQ(reply.header.status, StatusCode::kOk) << reply.payload;
      EXPECT_EQ(reply.values<float>()[11], 36);
    }
  }

  const TableEntry wide_ = Entry(Tensor("dense/kernel", DType::kFloat32, {3, 4}), 0);
  const TableEntry tall_ = Entry(Tensor("dense/kernel", DType::kFloat32, {4, 3}), 1);
  FakeWorkers workers_;
};

// All learn who sent what (protocol rule 3).
TEST_F(DisagreementTest, FailsForAllAndTheNextRoundWorks) {
  ExpectRoundWorks(0);
  workers_.Push(wide_, 0, 1, kTwelveFloats);
  EXPECT_TRUE(workers_.TakeReplies(0).empty());
  workers_.Push(tall_, 1, 1, kTwelveFloats);
  for (int worker = 0; worker < 2; ++worker) {
    const SentFrame reply = workers_.TakeReply(worker);
    EXPECT_EQ(reply.header.round, 1u);
    ExpectError(reply, StatusCode::kFailedPrecondition, {});
    EXPECT_EQ(reply.payload,
              "tensor \"dense/kernel\": workers disagree in round 1: worker 0 sent float32[3,4] "
              "sum; worker 1 sent "
              "float32[4,3] sum. Give every worker the same shape, dtype and operation, or "
              "different names.");
  }
  workers_.Push(wide_, 2, 1, kTwelveFloats);
  ExpectError(workers_.TakeReply(2), StatusCode::kFailedPrecondition,
              {"worker 1 sent", "worker 2 sent float32[3,4]"});
  ExpectRoundWorks(2);
}

TEST_F(DisagreementTest, APushThatIsStillArrivingIsToldAtItsEnd) {
  FakePush slow = workers_.NewPush(wide_, 0, 0, kTwelveFloats);
  ASSERT_TRUE(slow.Begin().ok());
  slow.Feed(10);
  workers_.Push(tall_, 1, 0, kTwelveFloats);
  ExpectError(workers_.TakeReply(1), StatusCode::kFailedPrecondition,
              {"worker 0 sent float32[3,4]"});
  EXPECT_TRUE(workers_.TakeReplies(0).empty());
  ASSERT_TRUE(slow.End().ok());
  const SentFrame reply = workers_.TakeReply(0);
  ExpectError(reply, StatusCode::kFailedPrecondition, {"worker 1 sent float32[4,3]"});
  EXPECT_EQ(reply.header.credit_bytes, kTwelveFloats.size()) << "what was dropped gives credit too";
  workers_.Push(wide_, 2, 0, kTwelveFloats);
  (void)workers_.TakeReplies(2);
  ExpectRoundWorks(1);
}

TEST_F(DisagreementTest, WhoComesAfterTheOthersWentOnStillLearnsWhy) {
  workers_.Push(wide_, 0, 0, kTwelveFloats);
  workers_.Push(tall_, 1, 0, kTwelveFloats);
  workers_.Push(wide_, 0, 1, kTwelveFloats);
  workers_.Push(wide_, 1, 1, kTwelveFloats);
  workers_.Push(wide_, 2, 0, kTwelveFloats);
  ExpectError(workers_.TakeReply(2), StatusCode::kFailedPrecondition, {"disagree in round 0"});
  workers_.Push(wide_, 2, 1, kTwelveFloats);
  EXPECT_EQ(workers_.TakeReply(2).header.status, StatusCode::kOk);
}

TEST(SummationFailureTest, ANewerRoundSupersedesAnOpenOne) {
  FakeWorkers workers(2);
  const TableEntry entry = Entry(Tensor("t", DType::kFloat32, {12}), 0, {4, 8});
  workers.Add(entry);
  const std::string payload = BytesOf<float>({1, 1, 1, 1, 1, 1, 1, 1});
  // Round 0 of part 1: worker 0 is there, worker 1 arrives in part; then worker 0 goes on to
  // round 1.
  workers.Push(entry, 0, 0, payload, 1);
  FakePush slow = workers.NewPush(entry, 1, 0, payload, 1);
  ASSERT_TRUE(slow.Begin().ok());
  slow.Feed(13);
  workers.Push(entry, 0, 1, payload, 1);
  const SentFrame given_up = workers.TakeReply(0);
  EXPECT_EQ(given_up.header.round, 0u);
  ExpectError(given_up, StatusCode::kFailedPrecondition,
              {"\"t\"", "worker 0 is in round 1", "worker 1"});
  ASSERT_TRUE(slow.End().ok());
  ExpectError(workers.TakeReply(1), StatusCode::kFailedPrecondition, {"round 0"});
  workers.Push(entry, 1, 1, payload, 1);
  for (int worker = 0; worker < 2; ++worker) {
    const SentFrame reply = workers.TakeReply(worker);
    EXPECT_EQ(reply.header.round, 1u);
    EXPECT_EQ(reply.values<float>(), std::vector<float>(8, 2))
        << "nothing of round 0 is in the sum";
  }
}

// A frame with which `worker` gives a part's round up.
void Withdraw(FakeWorkers& workers, const TableEntry& entry, int32_t worker, uint64_t round) {
  FrameHeader header = FakeWorkers::Header(entry, worker, round, "");
  header.status = StatusCode::kDeadlineExceeded;
  header.payload_bytes = 5;
  ASSERT_TRUE(workers.NewPush(header, worker).DeliverAll().ok());
}

TEST(SummationFailureTest, ARoundThatOneGivesUpFailsForTheOthersNowAndLater) {
  FakeWorkers workers(3);
  const TableEntry entry = Entry(Tensor("t", DType::kFloat32, {2}));
  workers.Add(entry);
  const std::string payload = BytesOf<float>({1, 1});
  workers.Push(entry, 0, 0, payload);
  workers.Push(entry, 1, 0, payload);
  Withdraw(workers, entry, 0, 0);
  ExpectError(workers.TakeReply(1), StatusCode::kDeadlineExceeded,
              {"\"t\"", "round 0", "worker 0 has given it up"});
  workers.TakeReplies(0);
  workers.Push(entry, 2, 0, payload);
  ExpectError(workers.TakeReply(2), StatusCode::kDeadlineExceeded, {"worker 0 has given it up"});
  for (int worker = 0; worker < 3; ++worker) workers.Push(entry, worker, 1, payload);
  for (int worker = 0; worker < 3; ++worker)
    EXPECT_EQ(workers.TakeReply(worker).values<float>(), std::vector<float>(2, 3));
}

TEST(SummationFailureTest, ARoundMayBeGivenUpBeforeItsFirstPushAndIsKeptWhenItHasEnded) {
  FakeWorkers workers(2);
  const TableEntry entry = Entry(Tensor("t", DType::kFloat32, {2}));
  workers.Add(entry);
  const std::string payload = BytesOf<float>({1, 1});
  Withdraw(workers, entry, 0, 0);
  workers.Push(entry, 1, 0, payload);
  ExpectError(workers.TakeReply(1), StatusCode::kDeadlineExceeded, {"worker 0 has given it up"});
  // The push may come after its withdrawal: control and data need not keep their order.
  workers.Push(entry, 0, 0, payload);
  workers.TakeReply(0);
  for (int worker = 0; worker < 2; ++worker) workers.Push(entry, worker, 1, payload);
  Withdraw(workers, entry, 0, 1);  // too late
  for (int worker = 0; worker < 2; ++worker)
    EXPECT_EQ(workers.TakeReply(worker).values<float>(), std::vector<float>(2, 2));
}

// All that it has not pushed, of a training that it has left.
TEST(SummationFailureTest, RoundsBeforeOneThatIsGivenUpFailForTheSameReason) {
  FakeWorkers workers(3);
  const TableEntry entry = Entry(Tensor("t", DType::kFloat32, {2}));
  workers.Add(entry);
  const std::string payload = BytesOf<float>({1, 1});
  workers.Push(entry, 1, 0, payload);
  Withdraw(workers, entry, 0, 999);
  const auto expect_told = [&](int worker, const std::string& round) {
    ExpectError(workers.TakeReply(worker), StatusCode::kDeadlineExceeded,
                {round, "worker 0 has given it up"});
  };
  expect_told(1, "round 0: ");
  workers.Push(entry, 2, 0, payload);
  expect_told(2, "round 0: ");
  // Also when it has gone on, and those who have not left the training stay behind.
  workers.Push(entry, 0, 1000, payload);
  for (uint64_t round = 1; round < 4; ++round) {
    workers.Push(entry, 1, round, payload);
    expect_told(1, "round " + std::to_string(round) + ": ");
  }
  Withdraw(workers, entry, 2, 999);  // too late to change anything
  for (int worker = 1; worker < 3; ++worker) workers.Push(entry, worker, 1000, payload);
  for (int worker = 0; worker < 3; ++worker)
    EXPECT_EQ(workers.TakeReply(worker).values<float>(), std::vector<float>(2, 3));
}

TEST(SummationFailureTest, ARoundThatNobodyElseEverPushedIsTooLate) {
  FakeWorkers workers(2);
  const TableEntry entry = Entry(Tensor("t", DType::kFloat32, {2}));
  workers.Add(entry);
  workers.Push(entry, 0, 5, BytesOf<float>({1, 2}));
  workers.Push(entry, 1, 3, BytesOf<float>({1, 2}));
  ExpectError(workers.TakeReply(1), StatusCode::kFailedPrecondition, {"round 3", "in round 5"});
  workers.Push(entry, 1, 5, BytesOf<float>({1, 2}));
  EXPECT_EQ(workers.TakeReply(1).values<float>(), (std::vector<float>{2, 4}));
}

// What a worker may not send; nothing of it may reach a sum or allocate memory.
TEST(SummationFailureTest, MalformedPushesAreRefused) {
  FakeWorkers workers(2);
  const TableEntry sum = Entry(Tensor("s", DType::kFloat32, {6}), 0, {4, 2});
  TableEntry elsewhere = Entry(Tensor("e", DType::kFloat32, {6}), 0, {4, 2});
  elsewhere.parts[1].server = 1;
  const TableEntry broadcast = Entry(Tensor("b", DType::kFloat32, {4}, ExchangeKind::kBroadcast));
  const TableEntry gather = Entry(Tensor("g", DType::kFloat32, {-1, 3}, ExchangeKind::kGather));
  const TableEntry split = Entry(Tensor("a", DType::kFloat32, {-1, 3}, ExchangeKind::kAllToAll));
  for (const TableEntry& entry : {sum, elsewhere, broadcast, gather, split}) workers.Add(entry);

  const auto refused = [&](const TableEntry& entry, auto change, const std::string& expected) {
    FrameHeader header =
        FakeWorkers::Header(entry, 1, 0, std::string(entry.parts[0].element_count * 4, '\0'));
    change(header);
    const Status status = workers.NewPush(header, 1).DeliverAll();
    EXPECT_FALSE(status.ok()) << expected;
    EXPECT_TRUE(Contains(status.message(), "worker 1 at 127.0.0.1")) << status.message();
    EXPECT_TRUE(Contains(status.message(), expected)) << status.message();
  };
  refused(sum, [](FrameHeader& h) { h.key = 1234; }, "not been told of");
  refused(sum, [](FrameHeader& h) { h.variant = 9; }, "unknown variant 9");
  refused(sum, [](FrameHeader& h) { h.part = 2; }, "part 2 does not live on server 0");
  refused(elsewhere, [](FrameHeader& h) { h.part = 1; }, "part 1 does not live on server 0");
  refused(sum, [](FrameHeader& h) { h.epoch = 6; }, "epoch 6");
  refused(sum, [](FrameHeader& h) { h.placement_version = 4; }, "placement version 4");
  refused(sum, [](FrameHeader& h) { h.worker = 0; }, "as worker 0");
  refused(sum, [](FrameHeader& h) { h.type = FrameType::kReply; }, "frame of type 2");
  refused(sum, [](FrameHeader& h) { h.payload_bytes = 15; }, "15 bytes; 16 belong");
  refused(sum, [](FrameHeader& h) { h.payload_bytes = 0; }, "0 bytes; 16 belong");
  refused(sum, [](FrameHeader& h) { h.element_count = 5; }, "5 elements; the part has 4");
  refused(sum, [](FrameHeader& h) { h.payload_offset = 4; }, "from byte 4 on");
  refused(sum, [](FrameHeader& h) { h.payload_bytes = uint64_t{1} << 20; }, "16 belong");
  refused(sum, [](FrameHeader& h) { h.element_count = uint64_t{1} << 62; }, "the part has 4");
  refused(broadcast, [](FrameHeader&) {}, "16 bytes; 0 belong");
  refused(
      gather, [](FrameHeader& h) { h.element_count = 4, h.payload_bytes = 16; }, "not 1 rows of 3");
  refused(
      gather, [](FrameHeader& h) { h.row_count = uint64_t{1} << 63, h.element_count = 0; },
      "rows of 3");
  refused(split, [](FrameHeader&) {}, "12 bytes; 28 belong");  // the splits are missing
  EXPECT_EQ(workers.service.counters().accumulator_bytes, 0u);
  EXPECT_EQ(workers.service.counters().pushes, 0u);
  EXPECT_TRUE(workers.connections[1]->TakeSent().empty());
}

TEST(SummationFailureTest, ARoundIsPushedOnce) {
  FakeWorkers workers(2);
  const TableEntry entry = Entry(Tensor("t", DType::kFloat32, {2}));
  workers.Add(entry);
  workers.Push(entry, 0, 0, BytesOf<float>({1, 2}));
  const Status twice = workers.NewPush(entry, 0, 0, BytesOf<float>({1, 2})).DeliverAll();
  EXPECT_EQ(twice.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Contains(twice.message(), "worker 0 at")) << twice.message();
  workers.Push(entry, 1, 0, BytesOf<float>({1, 2}));
  EXPECT_EQ(workers.TakeReply(1).values<float>(), (std::vector<float>{2, 4})) << "counted once";
  EXPECT_FALSE(workers.NewPush(entry, 1, 0, BytesOf<float>({1, 2})).DeliverAll().ok());
}

TEST(SummationFailureTest, WhoIsNoWorkerMayNotPush) {
  FakeWorkers workers(1);
  const TableEntry entry = Entry(Tensor("t", DType::kFloat32, {2}));
  workers.Add(entry);
  workers.connections[0]->set_role(Role::kServer);
  EXPECT_FALSE(workers.NewPush(entry, 0, 0, BytesOf<float>({1, 2})).DeliverAll().ok());
}

TEST(SummationFailureTest, BadEntriesAreRefused) {
  FakeWorkers workers(2);
  const TableEntry good = Entry(Tensor("t", DType::kFloat32, {6}));
  workers.Add(good);
  workers.Add(good);  // again: nothing happens
  const auto refused = [&](auto change) {
    TableEntry entry = good;
    entry.variant = 1;
    change(entry);
    EXPECT_FALSE(workers.service.AddEntries({entry}).ok());
  };
  refused([](TableEntry& e) { e.key = 1; });
  refused([](TableEntry& e) { e.variant = 0, e.tensor.shape = {3, 2}; });
  refused([](TableEntry& e) { e.parts[0].element_count = 5; });
  refused([](TableEntry& e) {
    e.parts = {{3, 1}, {3, 0}};
  });  // part 0 on another server than variant 0's
  refused([](TableEntry& e) { e.tensor.shape = {-6}; });
  refused([](TableEntry& e) { e.tensor.shape = {int64_t{1} << 40, int64_t{1} << 40}; });
  refused([](TableEntry& e) { e.parts = {{6, 0}, {1, -1}}; });
  refused([](TableEntry& e) {  // its sum overflows to the right number
    e.parts = {{std::numeric_limits<uint64_t>::max(), 0}, {7, 0}};
  });
  refused([](TableEntry& e) { e.tensor.kind = ExchangeKind::kBroadcast, e.tensor.root_rank = 2; });
  refused([](TableEntry& e) { e.tensor.name.clear(); });
  TableEntry elsewhere = good;
  elsewhere.parts[0].server = 1;
  elsewhere.key = 1;
  EXPECT_TRUE(workers.service.AddEntries({elsewhere}).ok()) << "not this server's business";
}

// An exchange fails on its worker while the network stalls; the worker exchanges the tensor again,
// more urgently, and both pushes come when the network does.
TEST(SummationFailureTest, APushThatANewerOneHasOvertakenIsTooLate) {
  FakeWorkers workers(2);
  const TableEntry entry = Entry(Tensor("t", DType::kFloat32, {2}));
  workers.Add(entry);
  const std::string payload = BytesOf<float>({1, 2});
  workers.Push(entry, 0, 2, payload);
  workers.Push(entry, 0, 1, payload);
  const SentFrame late = workers.TakeReply(0);
  EXPECT_EQ(late.header.round, 1u);
  ExpectError(late, StatusCode::kFailedPrecondition, {"\"t\"", "round 1 has been given up"});
  EXPECT_EQ(late.header.credit_bytes, 2 * payload.size()) << "both have been taken in";
  EXPECT_EQ(workers.service.counters().late_pushes, 1u);

  workers.Push(entry, 1, 2, payload);
  EXPECT_EQ(workers.TakeReply(0).values<float>(), (std::vector<float>{2, 4}));
  EXPECT_EQ(workers.TakeReply(1).values<float>(), (std::vector<float>{2, 4}));
  workers.Push(entry, 1, 0, payload);
  EXPECT_EQ(workers.TakeReply(1).header.status, StatusCode::kFailedPrecondition);
  EXPECT_EQ(workers.service.counters().pushes, 2u) << "what is in a sum";
}

Hello AgainAs(int32_t rank) {
  Hello hello;
  hello.rank = rank;
  hello.again = true;
  return hello;
}

class DepartedTest : public testing::Test {
 protected:
  DepartedTest() : workers_(2) { workers_.Add(entry_); }

  const TableEntry entry_ = Entry(Tensor("t", DType::kFloat32, {2}));
  const std::string payload_ = BytesOf<float>({1, 2});
  FakeWorkers workers_;
};

// A goodbye while others wait is an error that names both (protocol rule 21).
TEST_F(DepartedTest, RoundsThatLackALeaverFail) {
  workers_.Push(entry_, 0, 0, payload_);
  workers_.service.OnWorkersLeft({1});
  ExpectError(workers_.TakeReply(0), StatusCode::kFailedPrecondition,
              {"\"t\"", "worker 1 has left", "worker 0 waited"});
  workers_.Push(entry_, 0, 1, payload_);
  ExpectError(workers_.TakeReply(0), StatusCode::kFailedPrecondition,
              {"round 1", "worker 1 has left", "worker 0"});
}

TEST_F(DepartedTest, ARoundThatTheLeaverTookPartInCompletes) {
  workers_.Push(entry_, 1, 0, payload_);
  workers_.service.OnWorkersLeft({1});
  workers_.service.OnClosed(*workers_.connections[1], Unavailable("closed"));
  workers_.Push(entry_, 0, 0, payload_);
  EXPECT_EQ(workers_.TakeReply(0).values<float>(), (std::vector<float>{2, 4}));
}

TEST_F(DepartedTest, ALostWorkerFailsWhatWaitsAndWhatComes) {
  workers_.Push(entry_, 0, 0, payload_);
  workers_.service.OnWorkerLost(1, Unavailable("worker 1 on host7 died"));
  workers_.service.OnWorkerLost(1, Unavailable("another reason"));
  ExpectError(workers_.TakeReply(0), StatusCode::kUnavailable, {"\"t\"", "worker 1 on host7 died"});
  workers_.Push(entry_, 0, 1, payload_);
  ExpectError(workers_.TakeReply(0), StatusCode::kUnavailable, {"worker 1 on host7 died"});
}

TEST_F(DepartedTest, AConnectionThatIsClosedForWhatCameFailsWhatLacksItsWorker) {
  workers_.Push(entry_, 0, 0, payload_);
  FakePush cut_off = workers_.NewPush(entry_, 1, 0, payload_);
  ASSERT_TRUE(cut_off.Begin().ok());
  cut_off.Feed(6);
  workers_.service.OnClosed(*workers_.connections[1], InvalidArgument("worker 1 sent garbage"));
  ExpectError(workers_.TakeReply(0), StatusCode::kUnavailable,
              {"worker 1", "sent garbage", "worker 0"});
  workers_.Push(entry_, 0, 1, payload_);
  ExpectError(workers_.TakeReply(0), StatusCode::kUnavailable, {"sent garbage"});
  EXPECT_FALSE(workers_.service.CheckReturn(AgainAs(1)).ok());
}

TEST_F(DepartedTest, ALeaverWhosePushIsCutOffFailsItsRound) {
  workers_.Push(entry_, 0, 0, payload_);
  FakePush cut_off = workers_.NewPush(entry_, 1, 0, payload_);
  ASSERT_TRUE(cut_off.Begin().ok());
  workers_.service.OnWorkersLeft({1});
  EXPECT_TRUE(workers_.TakeReplies(0).empty()) << "the rest may still come";
  workers_.service.OnClosed(*workers_.connections[1], Unavailable("closed"));
  ExpectError(workers_.TakeReply(0), StatusCode::kFailedPrecondition,
              {"worker 1 has left", "worker 0 waited"});
}

// The goodbye comes by way of the coordinator, so that the end of the connection can be seen first.
TEST_F(DepartedTest, AGoodbyeMayBeOvertakenByTheEndOfTheConnection) {
  workers_.service.OnClosed(*workers_.connections[1], Unavailable("closed"));
  workers_.service.OnWorkersLeft({1});
  workers_.Push(entry_, 0, 0, payload_);
  ExpectError(workers_.TakeReply(0), StatusCode::kFailedPrecondition, {"worker 1 has left"});
}

}  // namespace
}  // namespace byteps

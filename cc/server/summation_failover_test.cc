// Parts that come from a server that is lost.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cc/server/testing/fake_workers.h"

namespace byteps {
namespace {

constexpr uint32_t kVersion = kTestPlacement + 1;

class MovedPartTest : public ::testing::Test {
 protected:
  explicit MovedPartTest(const TensorDescription& tensor = Tensor("t", DType::kFloat32, {3}))
      : workers_(3), before_(Entry(tensor)), entry_(Entry(tensor)) {
    before_.parts[0].server = 1;
    entry_.parts[0].version = kVersion;
    workers_.Add(before_);  // not here
  }

  // Round 8 is the next; worker 2 has the result of round 7.
  void Move(int32_t result_from = 2) {
    const Status status =
        workers_.service.MoveParts({1, kVersion, {entry_}, {{entry_.key, 0, 8, result_from}}});
    ASSERT_TRUE(status.ok()) << status.ToString();
  }
  FakePush Result(int32_t worker, const std::string& payload) {
    FrameHeader header = FakeWorkers::Header(entry_, worker, 7, payload);
    header.watermark = 8;
    header.row_count = 0;
    if (entry_.tensor.kind == ExchangeKind::kGather)
      header.element_count = (payload.size() - 3 * sizeof(int64_t)) / sizeof(float);
    return {&workers_.service, workers_.connections[worker].get(), header, payload};
  }

  FakeWorkers workers_;
  TableEntry before_;
  TableEntry entry_;
  const std::string payload_ = BytesOf<float>({1, 2, 3});
  const std::vector<float> result_ = {70, 71, 72};
};

TEST_F(MovedPartTest, AWorkerARoundBehindGetsTheResultFromAnother) {
  Move();
  workers_.Push(entry_, 0, 7, payload_);  // before the result
  EXPECT_TRUE(workers_.TakeReplies(0).empty());
  workers_.Push(entry_, 2, 8, payload_);
  ASSERT_TRUE(Result(2, BytesOf(result_)).DeliverAll().ok());
  EXPECT_EQ(workers_.TakeReply(0).values<float>(), result_);
  workers_.Push(entry_, 1, 7, payload_);  // after it
  const SentFrame late = workers_.TakeReply(1);
  EXPECT_EQ(late.values<float>(), result_);
  EXPECT_EQ(late.header.round, 7u);
  EXPECT_EQ(late.header.placement_version, kVersion);
  workers_.Push(entry_, 0, 8, payload_);
  workers_.Push(entry_, 1, 8, payload_);
  for (int32_t worker = 0; worker < 3; ++worker) {
    const SentFrame reply = workers_.TakeReply(worker);
    EXPECT_EQ(reply.values<float>(), (std::vector<float>{3, 6, 9}));
    EXPECT_EQ(reply.header.round, 8u);
  }
  EXPECT_EQ(workers_.service.counters().rounds_completed, 1u) << "round 7 is not summed again";
}

// Late, and nothing that ends a connection (protocol rule 31).
TEST_F(MovedPartTest, WhatWasOnItsWayByTheOldPlacementIsDropped) {
  Move(-1);
  FrameHeader header = FakeWorkers::Header(entry_, 0, 8, payload_);
  header.placement_version = kTestPlacement;
  FakePush old(&workers_.service, workers_.connections[0].get(), header, payload_);
  ASSERT_TRUE(old.DeliverAll().ok());
  for (int32_t worker = 0; worker < 3; ++worker) workers_.Push(entry_, worker, 8, payload_);
  for (int32_t worker = 0; worker < 3; ++worker)
    EXPECT_EQ(workers_.TakeReply(worker).values<float>(), (std::vector<float>{3, 6, 9}));
  EXPECT_EQ(workers_.service.counters().pushes, 3u);
}

TEST_F(MovedPartTest, APlacementToComeIsRefused) {
  Move();
  FrameHeader header = FakeWorkers::Header(entry_, 0, 8, payload_);
  header.placement_version = kVersion + 1;
  const Status status = workers_.NewPush(header, 0).Begin();
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("by placement version 5; valid is 4"), std::string::npos)
      << status.message();
}

// It comes back when its new owner is lost before anybody was told. What had begun here is void.
TEST_F(MovedPartTest, APartThatLeavesAndComesBackBeginsAnew) {
  Move(-1);
  workers_.Push(entry_, 0, 8, payload_);
  FrameHeader header = FakeWorkers::Header(entry_, 1, 8, payload_);
  FakePush arriving(&workers_.service, workers_.connections[1].get(), header, payload_);
  ASSERT_TRUE(arriving.Begin().ok());
  TableEntry away = entry_;
  away.parts[0].server = 1;
  away.parts[0].version = kVersion + 1;
  ASSERT_TRUE(workers_.service.MoveParts({2, kVersion + 1, {away}, {{away.key, 0, 8, -1}}}).ok());
  TableEntry back = entry_;
  back.parts[0].version = kVersion + 2;
  ASSERT_TRUE(workers_.service.MoveParts({3, kVersion + 2, {back}, {{back.key, 0, 8, -1}}}).ok());
  ASSERT_TRUE(arriving.End().ok());
  for (int32_t worker = 0; worker < 3; ++worker) workers_.Push(back, worker, 8, payload_);
  for (int32_t worker = 0; worker < 3; ++worker) {
    const SentFrame reply = workers_.TakeReply(worker);
    EXPECT_EQ(reply.values<float>(), (std::vector<float>{3, 6, 9}));
    EXPECT_EQ(reply.header.placement_version, kVersion + 2);
  }
}

// Its worker did not know yet (protocol rule 31).
TEST_F(MovedPartTest, APushAfterThePartHasLeftIsDropped) {
  Move(-1);
  TableEntry away = entry_;
  away.parts[0].server = 1;
  away.parts[0].version = kVersion + 1;
  ASSERT_TRUE(workers_.service.MoveParts({2, kVersion + 1, {away}, {}}).ok());
  for (int32_t worker = 0; worker < 3; ++worker) workers_.Push(entry_, worker, 8, payload_);
  for (int32_t worker = 0; worker < 3; ++worker) EXPECT_TRUE(workers_.TakeReplies(worker).empty());
}

TEST_F(MovedPartTest, AResultFromAnotherWorkerOrOfAnotherSizeIsRefused) {
  Move();
  EXPECT_EQ(Result(1, BytesOf(result_)).Begin().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Result(2, BytesOf<float>({1, 2})).Begin().code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Result(2, BytesOf(result_)).DeliverAll().ok());
  EXPECT_TRUE(Result(2, BytesOf(result_)).DeliverAll().ok()) << "again, over another connection";
}

TEST_F(MovedPartTest, ThePromisedResultIsNotWaitedForInVain) {
  Move();
  workers_.Push(entry_, 0, 7, payload_);
  workers_.service.OnWorkerLost(2, Unavailable("worker 2 died"));
  EXPECT_EQ(workers_.TakeReply(0).header.status, StatusCode::kUnavailable);
}

TEST_F(MovedPartTest, ARoundThatNobodyHasAndOthersHaveLeftIsLost) {
  Move(-1);
  workers_.Push(entry_, 0, 7, payload_);
  EXPECT_EQ(workers_.TakeReply(0).header.status, StatusCode::kUnavailable);
}

class MovedBroadcastTest : public MovedPartTest {
 protected:
  MovedBroadcastTest()
      : MovedPartTest(Tensor("b", DType::kFloat32, {3}, ExchangeKind::kBroadcast)) {}
};

// The root has the value, and pushes it once more; the others get it from the one who has it.
TEST_F(MovedBroadcastTest, TheRootGetsNoBytes) {
  Move();
  workers_.Push(entry_, 0, 7, payload_);
  workers_.Push(entry_, 1, 7, "");
  ASSERT_TRUE(Result(2, payload_).DeliverAll().ok());
  EXPECT_TRUE(workers_.TakeReply(0).payload.empty());
  EXPECT_EQ(workers_.TakeReply(1).payload, payload_);
}

class MovedGatherTest : public MovedPartTest {
 protected:
  MovedGatherTest() : MovedPartTest(Tensor("g", DType::kFloat32, {-1}, ExchangeKind::kGather)) {}
};

TEST_F(MovedGatherTest, RowCountsComeAlong) {
  Move();
  workers_.Push(entry_, 0, 7, payload_);
  const std::string result = BytesOf<int64_t>({3, 0, 1}) + BytesOf<float>({1, 2, 3, 9});
  ASSERT_TRUE(Result(2, result).DeliverAll().ok());
  EXPECT_EQ(workers_.TakeReply(0).payload, result);
}

}  // namespace
}  // namespace byteps

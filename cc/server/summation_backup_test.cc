// Averages that do not wait for all workers.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cc/server/testing/fake_workers.h"

namespace byteps {
namespace {

constexpr uint64_t kElements = 3;

TableEntry BackupEntry(DType dtype = DType::kFloat32, int32_t backup_workers = 1,
                       uint32_t variant = 0) {
  TensorDescription tensor = Tensor("g", dtype, {kElements});
  tensor.average = true;
  tensor.backup_workers = backup_workers;
  return Entry(tensor, variant);
}

std::string Threes(float value) { return BytesOf<float>({value, value, value}); }

void ExpectResult(const SentFrame& reply, uint64_t round, float expected) {
  EXPECT_EQ(reply.header.status, StatusCode::kOk) << reply.payload;
  EXPECT_EQ(reply.header.round, round);
  EXPECT_EQ(reply.values<float>(), std::vector<float>(kElements, expected));
}

// A round that ends without all (protocol rule 4).
TEST(SummationBackupTest, DividesByTheNumberThatIsInAndTellsWhoComesLater) {
  FakeWorkers workers(3);
  const TableEntry entry = BackupEntry();
  workers.Add(entry);
  for (uint64_t round = 0; round < 2; ++round) {
    workers.Push(entry, 0, round, Threes(1));
    EXPECT_TRUE(workers.TakeReplies(0).empty());
    workers.Push(entry, 2, round, Threes(4));
    ExpectResult(workers.TakeReply(0), round, 2.5);
    ExpectResult(workers.TakeReply(2), round, 2.5);
  }
  for (uint64_t round = 0; round < 2; ++round) {
    workers.Push(entry, 1, round, Threes(1000));
    ExpectResult(workers.TakeReply(1), round, 2.5);
  }
  EXPECT_EQ(workers.service.counters().rounds_completed, 2u);
  EXPECT_EQ(workers.service.counters().pushes, 4u);  // those that are in a sum
}

TEST(SummationBackupTest, WhoIsInBeforeTheRoundEndsCounts) {
  FakeWorkers workers(3, {}, 1, false, /*max_lag=*/1);
  const TableEntry entry = BackupEntry();
  workers.Add(entry);
  workers.Push(entry, 0, 0, Threes(1));
  workers.Push(entry, 1, 0, Threes(2));  // without worker 2
  workers.Push(entry, 0, 1, Threes(3));
  workers.Push(entry, 1, 1, Threes(6));
  ExpectResult(workers.TakeReplies(0).front(), 0, 1.5);
  EXPECT_EQ(workers.TakeReplies(1).size(), 1u);
  // Worker 2 would be two rounds behind: round 1 waits until it has come for round 0.
  workers.Push(entry, 2, 0, Threes(1000));
  ExpectResult(workers.TakeReply(2), 0, 1.5);
  ExpectResult(workers.TakeReply(0), 1, 4.5);
  ExpectResult(workers.TakeReply(1), 1, 4.5);
  // All three before the end: nobody is behind.
  workers.Push(entry, 2, 1, Threes(1000));
  ExpectResult(workers.TakeReply(2), 1, 4.5);
  FakePush slow = workers.NewPush(entry, 0, 2, Threes(9));
  ASSERT_TRUE(slow.Begin().ok());
  slow.Feed(5);
  workers.Push(entry, 2, 2, Threes(1));
  workers.Push(entry, 1, 2, Threes(2));
  ExpectResult(workers.TakeReply(1), 2, 1.5);
  // It was sending: dropped whole.
  ASSERT_TRUE(slow.End().ok());
  ExpectResult(workers.TakeReply(0), 2, 1.5);
}

TEST(SummationBackupTest, ARoundThatWaitsForOneTakesAllThatCome) {
  FakeWorkers workers(4, {}, 1, false, /*max_lag=*/1);
  const TableEntry entry = BackupEntry(DType::kFloat32, 2);
  workers.Add(entry);
  for (const int worker : {0, 1}) workers.Push(entry, worker, 0, Threes(1));
  for (const int worker : {0, 1, 2}) workers.TakeReplies(worker);
  for (const int worker : {0, 1}) workers.Push(entry, worker, 1, Threes(1));
  workers.Push(entry, 2, 0, Threes(50));
  ExpectResult(workers.TakeReply(2), 0, 1);
  workers.Push(entry, 2, 1, Threes(4));  // worker 3 is still missed in round 0
  EXPECT_TRUE(workers.TakeReplies(2).empty());
  workers.Push(entry, 3, 0, Threes(50));
  ExpectResult(workers.TakeReply(3), 0, 1);
  for (const int worker : {0, 1, 2}) ExpectResult(workers.TakeReply(worker), 1, 2);
}

TEST(SummationBackupTest, HalfsAreSummedInFloat32) {
  FakeWorkers workers(3);
  const TableEntry entry = BackupEntry(DType::kFloat16);
  workers.Add(entry);
  const std::vector<uint16_t> forty_thousand(kElements, 0x78e2);
  for (const int worker : {1, 2}) workers.Push(entry, worker, 0, BytesOf(forty_thousand));
  EXPECT_EQ(workers.TakeReply(1).values<uint16_t>(), forty_thousand);
  workers.Push(entry, 0, 0, BytesOf(std::vector<uint16_t>(kElements, 0)));
  EXPECT_EQ(workers.TakeReply(0).values<uint16_t>(), forty_thousand);
}

// Old results are kept while somebody needs them, and no longer.
TEST(SummationBackupTest, MemoryIsThatOfMaxLagRounds) {
  constexpr int32_t kLag = 40;  // more than the buffers that would be a fault otherwise
  FakeWorkers workers(2, {}, 1, false, kLag);
  const TableEntry entry = BackupEntry();
  workers.Add(entry);
  for (uint64_t round = 0; round < kLag; ++round) {
    workers.Push(entry, 0, round, Threes(static_cast<float>(round)));
    ExpectResult(workers.TakeReply(0), round, static_cast<float>(round));
  }
  workers.Push(entry, 0, kLag, Threes(0));
  EXPECT_TRUE(workers.TakeReplies(0).empty()) << "worker 1 is too far behind";
  workers.Push(entry, 1, 0, Threes(0));
  ExpectResult(workers.TakeReply(1), 0, 0);
  ExpectResult(workers.TakeReply(0), kLag, 0);
  for (uint64_t round = 1; round <= kLag; ++round) {
    workers.Push(entry, 1, round, Threes(0));
    ExpectResult(workers.TakeReply(1), round, round == kLag ? 0 : static_cast<float>(round));
  }
  EXPECT_LE(workers.service.counters().accumulator_bytes,
            (kLag + 2 + 4) * kElements * sizeof(float));
}

TEST(SummationBackupTest, AWorkerThatLeavesOrIsLostFailsTheOpenRound) {
  for (const bool is_lost : {false, true}) {
    FakeWorkers workers(3);
    const TableEntry entry = BackupEntry();
    workers.Add(entry);
    workers.Push(entry, 0, 0, Threes(1));
    is_lost ? workers.service.OnWorkerLost(2, Unavailable("worker 2 died"))
            : workers.service.OnWorkersLeft({2});
    EXPECT_NE(workers.TakeReply(0).header.status, StatusCode::kOk);
    workers.Push(entry, 1, 0, Threes(1));
    const SentFrame reply = workers.TakeReply(1);
    EXPECT_NE(reply.header.status, StatusCode::kOk);
    EXPECT_NE(reply.payload.find("worker 2"), std::string::npos) << reply.payload;
  }
}

TEST(SummationBackupTest, WhoHasFinishedMayLeaveBeforeTheLateOneHasItsResults) {
  FakeWorkers workers(3);
  const TableEntry entry = BackupEntry();
  workers.Add(entry);
  for (const uint64_t round : {0, 1}) {
    for (const int worker : {0, 1}) workers.Push(entry, worker, round, Threes(3));
  }
  for (const int worker : {0, 1}) workers.service.OnWorkersLeft({worker});
  for (const uint64_t round : {0, 1}) {
    workers.Push(entry, 2, round, Threes(5));
    ExpectResult(workers.TakeReply(2), round, 3);
  }
}

TEST(SummationBackupTest, ALateWorkerThatDisagreesIsTold) {
  FakeWorkers workers(3);
  const TableEntry entry = BackupEntry();
  TableEntry other = Entry(Tensor("g", DType::kFloat32, {kElements}), 1);
  workers.Add(entry);
  workers.Add(other);
  for (const int worker : {0, 1}) workers.Push(entry, worker, 0, Threes(3));
  workers.Push(other, 2, 0, Threes(3));
  const SentFrame reply = workers.TakeReply(2);
  EXPECT_EQ(reply.header.status, StatusCode::kFailedPrecondition);
  EXPECT_NE(reply.payload.find("worker 2 sent float32[3] sum"), std::string::npos) << reply.payload;
}

TEST(SummationBackupTest, LagsAreThoseAfterTheFirst) {
  FakeWorkers workers(3);
  const TableEntry entry = BackupEntry();
  workers.Add(entry);
  for (const int worker : {0, 1, 2}) workers.Push(entry, worker, 0, Threes(1));
  const std::vector<WorkerLag> lags = workers.service.arrival_lags();
  ASSERT_EQ(lags.size(), 3u);
  EXPECT_EQ(lags[0].total_ns, 0u);
  EXPECT_GT(lags[2].total_ns, lags[1].total_ns);
  EXPECT_EQ(lags[2].max_ns, lags[2].total_ns);
  EXPECT_EQ(lags[2].recent_ns, lags[2].total_ns);
  EXPECT_EQ(lags[1].dropped, 0u);
  EXPECT_EQ(lags[2].dropped, 1u);
  EXPECT_EQ(lags[2].contributions, 1u);
}

// The sums of a quorum (protocol rule 4).
TEST(SummationBackupTest, WhoWishesForAQuorumsSumIsNotInIt) {
  FakeWorkers workers(3);
  TableEntry entry = BackupEntry(DType::kInt64);
  entry.tensor.average = false;
  workers.Add(entry);
  const auto threes = [](int64_t value) { return BytesOf<int64_t>({value, value, value}); };
  constexpr int64_t kLarge = (int64_t{1} << 62) + 1;  // no float has it
  workers.Push(entry, 2, 0, "");
  workers.Push(entry, 0, 0, threes(kLarge));
  EXPECT_TRUE(workers.TakeReplies(0).empty()) << "a wish does not count";
  workers.Push(entry, 1, 0, threes(5));
  for (const int worker : {0, 1, 2}) {
    EXPECT_EQ(workers.TakeReply(worker).values<int64_t>(),
              std::vector<int64_t>(kElements, kLarge + 5));
  }
  workers.Push(entry, 0, 1, threes(1));
  workers.Push(entry, 2, 1, threes(2));
  EXPECT_EQ(workers.TakeReply(0).values<int64_t>(), std::vector<int64_t>(kElements, 3));
  workers.Push(entry, 1, 1, "");  // later
  EXPECT_EQ(workers.TakeReply(1).values<int64_t>(), std::vector<int64_t>(kElements, 3));
}

TEST(SummationBackupTest, AQuorumsRoundEndsByItselfWhenItsGraceWindowIsOver) {
  FakeWorkers workers(3);
  TableEntry entry = BackupEntry(DType::kInt64);
  entry.tensor.average = false;
  entry.tensor.grace_ms = 20;
  workers.Add(entry);
  const std::string ones = BytesOf<int64_t>({1, 1, 1});
  workers.connections[2]->idle = false;
  workers.Push(entry, 0, 0, ones);
  for (const int worker : {1, 2}) {
    const std::vector<SentFrame> sent = workers.connections[worker]->TakeSent();
    ASSERT_EQ(sent.size(), 1u) << "whether or not something is being sent to it";
    EXPECT_EQ(sent[0].header.type, FrameType::kRequested);
  }
  workers.Push(entry, 1, 0, ones);
  std::vector<SentFrame> replies;
  while (replies.empty()) {
    SleepFor(1000000);
    replies = workers.TakeReplies(0);
  }
  EXPECT_EQ(replies[0].values<int64_t>(), std::vector<int64_t>(kElements, 2));
  workers.Push(entry, 2, 0, ones);
  EXPECT_EQ(workers.TakeReply(2).values<int64_t>(), std::vector<int64_t>(kElements, 2));
  // All of them: it ends at once.
  for (const int worker : {0, 1, 2}) workers.Push(entry, worker, 1, ones);
  EXPECT_EQ(workers.TakeReply(2).values<int64_t>(), std::vector<int64_t>(kElements, 3));
}

}  // namespace
}  // namespace byteps

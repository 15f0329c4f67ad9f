// Tables whose rows are on servers (protocol rule 38).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cc/base/testing/table_requests.h"
#include "cc/base/training_rounds.h"
#include "cc/server/testing/fake_workers.h"

namespace byteps {
namespace {

using Kind = TableRequest::Kind;

// A copy of a block that comes to these workers' server, because its own is lost: without rows.
TableEntry LostCopy(FakeWorkers* workers, uint64_t next_round) {
  PartsMoved moved;
  moved.version = kTestPlacement + 1;
  TableEntry other = Entry(Tensor("u", DType::kUInt8, {-1}, ExchangeKind::kTable));
  other.parts[0].version = moved.version;
  moved.entries = {other};
  moved.parts = {{other.key, 0, next_round}};
  EXPECT_TRUE(workers->service.MoveParts(moved).ok());
  return other;
}

class PartTableTest : public ::testing::Test {
 protected:
  PartTableTest() {
    workers.Add(entry);
    for (int32_t rank = 0; rank < 2; ++rank) workers.Push(entry, rank, 0, MakeBytes(SomeTable()));
    for (int32_t rank = 0; rank < 2; ++rank)
      EXPECT_EQ(workers.TakeReply(rank).header.status, StatusCode::kOk);
  }

  // The text of the only reply: "" if it is no error.
  std::string Error(int32_t rank) {
    const SentFrame reply = workers.TakeReply(rank);
    return reply.header.status == StatusCode::kOk ? "" : reply.payload;
  }

  std::vector<float> Rows(int32_t rank) {
    const SentFrame reply = workers.TakeReply(rank);
    EXPECT_EQ(reply.header.status, StatusCode::kOk) << reply.payload;
    std::vector<float> values((reply.payload.size() - 16) / sizeof(float));
    std::memcpy(values.data(), reply.payload.data() + 16, values.size() * sizeof(float));
    int64_t bytes[2];
    std::memcpy(bytes, reply.payload.data(), sizeof(bytes));
    EXPECT_EQ(bytes[rank], static_cast<int64_t>(values.size() * sizeof(float)));
    EXPECT_EQ(bytes[1 - rank], 0);
    return values;
  }

  std::string Update(uint64_t number, double rate = 1) {
    return RequestBytes(Kind::kUpdate, number, {2}, {1, 2}, rate);
  }

  FakeWorkers workers{2};
  const TableEntry entry = Entry(Tensor("t", DType::kUInt8, {-1}, ExchangeKind::kTable));
};

TEST_F(PartTableTest, AChangeWaitsForAllAndAReadForNobody) {
  workers.Push(entry, 0, 1, Update(1));
  EXPECT_TRUE(workers.TakeReplies(0).empty());
  workers.Push(entry, 1, 1, RequestBytes(Kind::kRead, 1, {2}));
  EXPECT_EQ(Rows(1), (std::vector<float>{1, 1}));
  workers.Push(entry, 1, 2, Update(1));
  EXPECT_EQ(Error(0), "");
  EXPECT_EQ(Error(1), "");
  workers.Push(entry, 0, 2, RequestBytes(Kind::kRead, 2, {2, 0}));
  EXPECT_EQ(Rows(0), (std::vector<float>{-1, -3, 1, 1}));
}

TEST_F(PartTableTest, WorkersThatDisagreeGetTheSameSentence) {
  workers.Push(entry, 0, 1, Update(1, 0.5));
  workers.Push(entry, 1, 1, Update(1, 0.25));
  const std::string error = Error(0);
  EXPECT_NE(error.find("the workers do not make the same change: worker 0"), std::string::npos);
  EXPECT_EQ(Error(1), error);
}

TEST_F(PartTableTest, AGradientThatIsNoNumberFailsTheChangeForAllAndItIsMadeAgain) {
  workers.Push(entry, 1, 1,
               RequestBytes(Kind::kUpdate, 1, {}, {}, std::numeric_limits<double>::quiet_NaN()));
  workers.Push(entry, 0, 1, Update(1));
  EXPECT_NE(Error(0).find("worker 1 has gradients of the table \"users\" that are NaN"),
            std::string::npos);
  EXPECT_NE(Error(1), "");
  for (int32_t rank = 0; rank < 2; ++rank) workers.Push(entry, rank, 2, Update(1));
  EXPECT_EQ(Error(0), "");
  EXPECT_EQ(Error(1), "");
}

TEST_F(PartTableTest, AWorkerThatGivesUpFailsTheChangeForThoseWhoWait) {
  workers.Push(entry, 0, 1, Update(1));
  FrameHeader header = FakeWorkers::Header(entry, 1, 1, "its loss is bad");
  header.status = StatusCode::kCancelled;
  ASSERT_TRUE(FakePush(&workers.service, workers.connections[1].get(), header, "its loss is bad")
                  .DeliverAll()
                  .ok());
  EXPECT_NE(Error(0).find("worker 1 has given up: its loss is bad"), std::string::npos);
  for (int32_t rank = 0; rank < 2; ++rank) workers.Push(entry, rank, 2, Update(1));
  EXPECT_EQ(Error(0), "");
  EXPECT_EQ(Error(1), "");
}

// Its withdrawal comes before the other has asked for the change, and after this worker's first
// request in the next training.
TEST_F(PartTableTest, AWorkerThatLeavesATrainingFailsChangesThatAreAskedForLater) {
  constexpr uint64_t kNext = kRoundsOfTraining;
  workers.Push(entry, 1, kNext, RequestBytes(Kind::kRead, 1, {2}));
  EXPECT_EQ(Rows(1), (std::vector<float>{1, 1}));
  FrameHeader header = FakeWorkers::Header(entry, 1, kNext - 1, "its loss is bad");
  header.status = StatusCode::kCancelled;
  ASSERT_TRUE(FakePush(&workers.service, workers.connections[1].get(), header, "its loss is bad")
                  .DeliverAll()
                  .ok());
  workers.Push(entry, 0, 1, Update(1));
  EXPECT_NE(Error(0).find("worker 1 has given up: its loss is bad"), std::string::npos);
  for (int32_t rank = 0; rank < 2; ++rank) workers.Push(entry, rank, kNext + 1, Update(1));
  EXPECT_EQ(Error(0), "");
  EXPECT_EQ(Error(1), "");
}

TEST_F(PartTableTest, AWorkerThatHasLeftFailsTheChange) {
  workers.Push(entry, 0, 1, Update(1));
  workers.service.OnWorkersLeft({1});
  EXPECT_NE(Error(0).find("worker 1 has left"), std::string::npos);
  workers.Push(entry, 0, 2, Update(1));
  EXPECT_NE(Error(0).find("worker 1 has left"), std::string::npos);
  workers.Push(entry, 0, 3, RequestBytes(Kind::kRead, 1, {0}));
  EXPECT_EQ(Rows(0), (std::vector<float>{1, 1}));
}

TEST_F(PartTableTest, ALostWorkerFailsTheChange) {
  workers.Push(entry, 0, 1, Update(1));
  workers.service.OnWorkerLost(1, Unavailable("worker 1 is lost"));
  EXPECT_NE(Error(0).find("worker 1 is lost"), std::string::npos);
}

TEST_F(PartTableTest, RowsThatHaveMissedAChangeAreNotGivenOut) {
  workers.Push(entry, 0, 1, RequestBytes(Kind::kRead, 2, {0}));
  EXPECT_NE(Error(0).find("has none of its rows"), std::string::npos);
}

TEST_F(PartTableTest, ARequestThatComesOnceMoreIsAnsweredOnce) {
  for (int32_t rank = 0; rank < 2; ++rank) workers.Push(entry, rank, 1, Update(1));
  EXPECT_EQ(Error(0), "");
  workers.Push(entry, 0, 2, Update(1));  // to this server only the answer was lost
  EXPECT_EQ(Error(0), "");
  workers.Push(entry, 0, 3, RequestBytes(Kind::kRead, 2, {2}));
  EXPECT_EQ(Rows(0), (std::vector<float>{-1, -3}));
}

TEST_F(PartTableTest, BytesThatAreNoRequestGetASentence) {
  workers.Push(entry, 0, 1, "nonsense");
  EXPECT_NE(Error(0).find("worker 0: its 8 bytes are no request"), std::string::npos);
  workers.Push(entry, 0, 2, RequestBytes(Kind::kRead, 1, {8}));
  EXPECT_NE(Error(0).find("it asks for row 8 of the block"), std::string::npos);
}

TEST_F(PartTableTest, TheServerThatGetsThePartOfALostOneHasNoRows) {
  TableEntry other = LostCopy(&workers, 4);
  workers.Push(other, 0, 4, Update(3));
  EXPECT_NE(Error(0).find("on a server that is lost"), std::string::npos);
}

TEST(PartTableMakingTest, TablesThatDifferAreRefused) {
  FakeWorkers workers(2);
  const TableEntry entry = Entry(Tensor("t", DType::kUInt8, {-1}, ExchangeKind::kTable));
  workers.Add(entry);
  TableSpec other = SomeTable();
  other.rows = 9;
  workers.Push(entry, 0, 0, MakeBytes(SomeTable()));
  workers.Push(entry, 1, 0, MakeBytes(other));
  for (int32_t rank = 0; rank < 2; ++rank) {
    const SentFrame reply = workers.TakeReply(rank);
    EXPECT_EQ(reply.header.status, StatusCode::kFailedPrecondition);
    EXPECT_NE(reply.payload.find("9 rows of 2 in block 1 of 3"), std::string::npos);
  }
}

}  // namespace
}  // namespace byteps

// Tables that workers have released (protocol rule 41).
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cc/base/testing/table_requests.h"
#include "cc/server/kept_tables.h"
#include "cc/server/testing/fake_workers.h"

namespace byteps {
namespace {

using Kind = TableRequest::Kind;

// Larger than all answers.
TableSpec LargeTable() {
  TableSpec spec = SomeTable();
  spec.width = 1000;
  return spec;
}

// Two workers with a table on one server.
class PartTableReleaseTest : public ::testing::Test {
 protected:
  explicit PartTableReleaseTest(std::shared_ptr<KeptTables> kept = nullptr)
      : workers(2, {}, 1, false, 2, false, std::move(kept)) {
    workers.Add(entry);
    for (int32_t rank = 0; rank < 2; ++rank) Begin(rank, MakeBytes(LargeTable()));
    for (int32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(Answer(rank), "");
  }

  void Begin(int32_t rank, const std::string& request) {
    workers.Push(entry, rank, rounds_[rank]++, request);
  }
  // Without the number of bytes for each worker; of an error its text.
  std::string Answer(int32_t rank) {
    const SentFrame reply = workers.TakeReply(rank);
    return reply.header.status == StatusCode::kOk ? reply.payload.substr(16) : reply.payload;
  }
  std::string Ask(int32_t rank, const std::string& request) {
    Begin(rank, request);
    return Answer(rank);
  }

  CopyState Release(int32_t rank) {
    uint32_t state = 0;
    const std::string answer = Ask(rank, RequestBytes(Kind::kRelease, 1, {}));
    std::memcpy(&state, answer.data() + sizeof(int32_t), sizeof(state));
    return static_cast<CopyState>(state);
  }
  std::string Read(int32_t rank) { return Ask(rank, RequestBytes(Kind::kRead, 1, {2})); }
  static std::string Update() {
    return RequestBytes(Kind::kUpdate, 1, {2}, std::vector<float>(LargeTable().width, 1));
  }

  bool HasRows() const {
    return workers.service.counters().accumulator_bytes >= LargeTable().ByteCount();
  }

  FakeWorkers workers;
  TableEntry entry = Entry(Tensor("t", DType::kUInt8, {-1}, ExchangeKind::kTable));

 private:
  std::vector<uint64_t> rounds_ = {0, 0};
};

class KeptReleaseTest : public PartTableReleaseTest {
 protected:
  KeptReleaseTest() : KeptReleaseTest(std::make_shared<KeptTables>()) {}
  explicit KeptReleaseTest(const std::shared_ptr<KeptTables>& kept)
      : PartTableReleaseTest(kept), kept(kept) {
    for (int32_t rank = 0; rank < 2; ++rank) Ask(rank, MarkBytes(1, 1));
  }

  const std::shared_ptr<KeptTables> kept;
};

TEST_F(PartTableReleaseTest, RowsAreFreedWithTheLastRelease) {
  ASSERT_TRUE(HasRows());
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Release(1), CopyState::kWhole);  // it may say so again
  EXPECT_TRUE(HasRows());
  EXPECT_EQ(Read(0).size(), LargeTable().RowBytes());
  EXPECT_EQ(Release(0), CopyState::kFreed);
  EXPECT_FALSE(HasRows());
  EXPECT_EQ(Release(1), CopyState::kFreed);
  EXPECT_EQ(workers.service.counters().lacking_blocks, 0u);
}

TEST_F(PartTableReleaseTest, WhoeverChangesAReleasedTableGetsASentence) {
  Begin(0, Update());
  Release(1);
  EXPECT_NE(Answer(0).find("worker 1 has released the table, and all workers change"),
            std::string::npos);
  EXPECT_NE(Ask(0, Update()).find("worker 1 has released the table"), std::string::npos);
  EXPECT_EQ(Read(0).size(), LargeTable().RowBytes());
}

TEST_F(PartTableReleaseTest, NothingIsLeftOfAFreedTable) {
  for (int32_t rank = 0; rank < 2; ++rank) Release(rank);
  const std::string copied = CopyBytes(1, 0, 1);
  for (const std::string& request :
       {Update(), RequestBytes(Kind::kUpdate, 2, {}), MakeBytes(LargeTable()),
        RequestBytes(Kind::kRead, 0, {2}), copied, MarkBytes(1, 1), RefillBytes(LargeTable(), 1)}) {
    EXPECT_NE(Ask(0, request).find("tensor \"t\""), std::string::npos);
    EXPECT_FALSE(HasRows());
  }
  EXPECT_NE(Read(0).find("all workers have released the table"), std::string::npos);
  EXPECT_EQ(workers.service.counters().lacking_blocks, 0u);
}

TEST_F(PartTableReleaseTest, AChangeThatIsMadeIsAnsweredOnceMore) {
  for (int32_t rank = 0; rank < 2; ++rank) Begin(rank, Update());
  for (int32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(Answer(rank), "");
  Ask(1, RequestBytes(Kind::kRelease, 2, {}));
  EXPECT_EQ(Ask(0, Update()), "");
}

TEST_F(PartTableReleaseTest, AWorkerThatHasLeftNeedNotReleaseIt) {
  Release(0);
  workers.service.OnWorkersLeft({1});
  EXPECT_FALSE(HasRows());
}

TEST_F(PartTableReleaseTest, NorOneThatHadLeftBefore) {
  workers.service.OnWorkersLeft({1});
  EXPECT_EQ(Read(0).size(), LargeTable().RowBytes());
  EXPECT_EQ(Release(0), CopyState::kFreed);
  EXPECT_FALSE(HasRows());
}

// Where the copy was before, a worker had released it. It says so again.
TEST_F(PartTableReleaseTest, ACopyThatComesFromALostServerIsFreed) {
  Release(0);
  PartsMoved moved;
  moved.version = kTestPlacement + 1;
  entry = Entry(Tensor("u", DType::kUInt8, {-1}, ExchangeKind::kTable));
  entry.parts[0].version = moved.version;
  moved.entries = {entry};
  moved.parts = {{entry.key, 0, 2}};
  ASSERT_TRUE(workers.service.MoveParts(moved).ok());
  EXPECT_EQ(workers.service.counters().lacking_blocks, 1u);
  EXPECT_EQ(Release(1), CopyState::kLost);
  EXPECT_EQ(Release(0), CopyState::kFreed);
  EXPECT_EQ(workers.service.counters().lacking_blocks, 0u);
}

// Protocol rules 40 and 41.
TEST_F(KeptReleaseTest, WorkersLeaveAnEpochAndGoOnWithTheRows) {
  workers.service.OnWorkersLeft({0, 1});
  workers.service.KeepTables();
  EXPECT_NE(kept->Encode(), "");
}

TEST_F(KeptReleaseTest, RowsThatSomeWorkerHasNotReleasedAreKept) {
  EXPECT_EQ(Release(0), CopyState::kWhole);
  workers.service.OnWorkersLeft({0, 1});
  workers.service.KeepTables();
  EXPECT_NE(kept->Encode(), "");
}

TEST_F(KeptReleaseTest, RowsThatAllHaveReleasedAreNotKept) {
  for (int32_t rank = 0; rank < 2; ++rank) Release(rank);
  EXPECT_FALSE(HasRows());
  workers.service.KeepTables();
  EXPECT_EQ(kept->Encode(), "");
}

}  // namespace
}  // namespace byteps

// Rows of tables that servers keep from one membership epoch to the next (protocol rule 40).
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cc/base/testing/table_requests.h"
#include "cc/server/kept_tables.h"
#include "cc/server/testing/fake_workers.h"

namespace byteps {
namespace {

using Kind = TableRequest::Kind;
constexpr TablePoint kCommit = {kTestEpoch, 2};

class PartTableEpochsTest : public ::testing::Test {
 protected:
  PartTableEpochsTest() { BeginEpoch(2); }

  void BeginEpoch(int32_t num_workers) {
    if (workers.has_value()) workers->service.KeepTables();
    workers.emplace(num_workers, std::vector<std::string>(), 1, false, 2, false, kept);
    workers->Add(entry);
    rounds_.assign(num_workers, 0);
  }

  // One worker asks. The text of the answer.
  std::string Ask(int32_t rank, const std::string& request) {
    workers->Push(entry, rank, rounds_[rank]++, request);
    const SentFrame reply = workers->TakeReply(rank);
    status = reply.header.status;
    return reply.payload;
  }

  // All ask for a change. What the last one is answered.
  std::string Change(const std::string& request) {
    for (size_t rank = 0; rank + 1 < rounds_.size(); ++rank)
      workers->Push(entry, static_cast<int32_t>(rank), rounds_[rank]++, request);
    const std::string text = Ask(static_cast<int32_t>(rounds_.size()) - 1, request);
    for (size_t rank = 0; rank + 1 < rounds_.size(); ++rank)
      EXPECT_EQ(workers->TakeReply(static_cast<int32_t>(rank)).header.status, status);
    return status == StatusCode::kOk ? "" : text;
  }

  // Each worker takes {1, 2} from row 2.
  std::string Update(uint64_t number) {
    return Change(RequestBytes(Kind::kUpdate, number, {2}, {1, 2}));
  }

  std::vector<float> RowTwo(uint64_t number) {
    const std::string answer = Ask(0, RequestBytes(Kind::kRead, number, {2}));
    EXPECT_EQ(status, StatusCode::kOk) << answer;
    std::vector<float> values(2);
    std::memcpy(values.data(), answer.data() + answer.size() - 8, 8);
    return values;
  }

  // A table with one change, which all have committed, and another one after that.
  void CommitOneOfTwoChanges() {
    EXPECT_EQ(Change(MakeBytes(SomeTable())), "");
    EXPECT_EQ(Update(1), "");
    for (int32_t rank = 0; rank < 2; ++rank) {
      Ask(rank, MarkBytes(2, 1));
      EXPECT_EQ(status, StatusCode::kOk);
    }
    EXPECT_EQ(Update(2), "");
    EXPECT_EQ(RowTwo(3), (std::vector<float>{-3, -7}));
  }

  const std::shared_ptr<KeptTables> kept = std::make_shared<KeptTables>();
  const TableEntry entry = Entry(Tensor("t", DType::kUInt8, {-1}, ExchangeKind::kTable));
  std::optional<FakeWorkers> workers;
  StatusCode status = StatusCode::kOk;

 private:
  std::vector<uint64_t> rounds_;
};

TEST_F(PartTableEpochsTest, RowsGoBackToTheCommitAndAreUpdatedByOtherWorkers) {
  CommitOneOfTwoChanges();
  BeginEpoch(3);
  EXPECT_EQ(Change(ResumeBytes(SomeTable(), kCommit)), "");
  EXPECT_EQ(RowTwo(2), (std::vector<float>{-1, -3}));
  EXPECT_EQ(Update(2), "");
  EXPECT_EQ(RowTwo(3), (std::vector<float>{-4, -9}));
}

// Others say that nobody goes back only with the next commit.
TEST_F(PartTableEpochsTest, ALossBeforeTheNextCommitGoesBackToTheSamePoint) {
  CommitOneOfTwoChanges();
  BeginEpoch(2);
  EXPECT_EQ(Change(ResumeBytes(SomeTable(), kCommit)), "");
  Ask(0, MarkBytes(2, 2));
  EXPECT_EQ(Update(2), "");
  BeginEpoch(1);
  EXPECT_EQ(Change(ResumeBytes(SomeTable(), kCommit)), "");
  EXPECT_EQ(RowTwo(2), (std::vector<float>{-1, -3}));
}

TEST_F(PartTableEpochsTest, RowsThatAreNotHereAreLost) {
  CommitOneOfTwoChanges();
  BeginEpoch(2);
  const std::string error = Change(ResumeBytes(SomeTable(), {kTestEpoch, 3}));
  EXPECT_EQ(status, StatusCode::kUnavailable);
  EXPECT_NE(error.find("has none of its rows"), std::string::npos);
  Ask(0, RefillBytes(SomeTable(), 3));  // from another server's
  EXPECT_EQ(status, StatusCode::kOk);
}

TEST_F(PartTableEpochsTest, AMarkSaysHowManyChangesTheWorkerHasMade) {
  CommitOneOfTwoChanges();
  Ask(0, MarkBytes(4, 2));
  EXPECT_EQ(status, StatusCode::kUnavailable);
  Ask(0, RequestBytes(Kind::kMark, 3, {}));
  EXPECT_EQ(status, StatusCode::kInvalidArgument);
}

TEST_F(PartTableEpochsTest, WorkersThatGoOnElsewhereAreRefused) {
  CommitOneOfTwoChanges();
  BeginEpoch(2);
  workers->Push(entry, 0, 0, ResumeBytes(SomeTable(), kCommit));
  workers->Push(entry, 1, 0, ResumeBytes(SomeTable(), {kTestEpoch, 1}));
  for (int32_t rank = 0; rank < 2; ++rank) {
    const SentFrame reply = workers->TakeReply(rank);
    EXPECT_EQ(reply.header.status, StatusCode::kFailedPrecondition);
    EXPECT_NE(reply.payload.find("at different points: worker 0 after 2 changes, worker 1 after 1"),
              std::string::npos)
        << reply.payload;
  }
}

TEST_F(PartTableEpochsTest, AServerSaysWhatItHasKeptUntilNobodyNeedsIt) {
  CommitOneOfTwoChanges();
  BeginEpoch(2);
  const std::string answer = Ask(0, RequestBytes(Kind::kKept, 0, {}));
  std::string expected;
  AppendBytes(int32_t{0}, &expected);  // the server
  for (const uint64_t number : {1, 3, 5, 1}) AppendBytes(number, &expected);
  expected += "users";
  for (const uint64_t number : {uint64_t{kTestEpoch}, uint64_t{2}}) AppendBytes(number, &expected);
  EXPECT_EQ(answer.substr(2 * sizeof(int64_t)), expected);
  Ask(0, RequestBytes(Kind::kDrop, 0, {}));
  EXPECT_EQ(Ask(0, RequestBytes(Kind::kKept, 0, {})).size(), 2 * sizeof(int64_t) + 4);
}

TEST_F(PartTableEpochsTest, ATableThatIsMadeAnewReplacesWhatWasKept) {
  CommitOneOfTwoChanges();
  BeginEpoch(2);
  EXPECT_EQ(Change(MakeBytes(SomeTable())), "");
  EXPECT_EQ(RowTwo(1), (std::vector<float>{1, 1}));
  EXPECT_EQ(kept->Encode(), "");
}

TEST_F(PartTableEpochsTest, MemoryIsThatOfTheServiceThatHasTheRows) {
  CommitOneOfTwoChanges();
  const uint64_t bytes = workers->service.counters().accumulator_bytes;
  BeginEpoch(2);
  EXPECT_EQ(Change(ResumeBytes(SomeTable(), kCommit)), "");
  EXPECT_GE(bytes, SomeTable().ByteCount());
  EXPECT_GE(workers->service.counters().accumulator_bytes, SomeTable().ByteCount());
}

}  // namespace
}  // namespace byteps

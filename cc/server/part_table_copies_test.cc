// A copy of a block that is lost with its server gets its rows again (protocol rule 39).
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "cc/base/testing/table_requests.h"
#include "cc/server/testing/fake_workers.h"

namespace byteps {
namespace {

using Kind = TableRequest::Kind;

// Two workers, and two copies of a block on one server: `whole` has rows, `lost` has lost them.
class PartTableCopiesTest : public ::testing::Test {
 protected:
  PartTableCopiesTest() {
    workers.Add(whole);
    Both(&whole_round, whole, MakeBytes(SomeTable()));
    Change(whole, &whole_round, 1, {2, 5});
    PartsMoved moved;
    moved.version = kTestPlacement + 1;
    lost.parts[0].version = moved.version;
    moved.entries = {lost};
    moved.parts = {{lost.key, 0, 2}};
    EXPECT_TRUE(workers.service.MoveParts(moved).ok());
    lost_round = 2;
  }

  std::string Ask(const TableEntry& entry, uint64_t* round, int32_t rank, const std::string& what) {
    workers.Push(entry, rank, (*round)++, what);
    return Answer(rank);
  }

  // Without the number of bytes for each worker; of an error its text.
  std::string Answer(int32_t rank) {
    const SentFrame reply = workers.TakeReply(rank);
    return reply.header.status == StatusCode::kOk ? reply.payload.substr(16) : reply.payload;
  }

  void Both(uint64_t* round, const TableEntry& entry, const std::string& what) {
    for (int32_t rank = 0; rank < 2; ++rank) workers.Push(entry, rank, *round, what);
    ++*round;
    for (int32_t rank = 0; rank < 2; ++rank) EXPECT_EQ(Answer(rank), "");
  }

  void Change(const TableEntry& entry, uint64_t* round, uint64_t number,
              const std::vector<int64_t>& rows) {
    Both(round, entry,
         RequestBytes(Kind::kUpdate, number, rows, std::vector<float>(2 * rows.size(), 1)));
  }

  static CopyState StateIn(const std::string& answer) {
    uint32_t state = 0;
    std::memcpy(&state, answer.data() + 4, sizeof(state));
    return static_cast<CopyState>(state);
  }

  // Copies rows from `begin` on, one at a time.
  std::string CopyOne(uint64_t number, int64_t begin) {
    return Ask(whole, &whole_round, 0, CopyBytes(number, begin, 1));
  }

  // Change 2 is made while the filling begins, and without this copy.
  void Begin() {
    const std::string begun = Ask(lost, &lost_round, 0, RefillBytes(SomeTable(), 2));
    EXPECT_EQ(StateIn(begun), CopyState::kFilling);
    Change(whole, &whole_round, 2, {5});
  }

  std::string Read(const TableEntry& entry, uint64_t* round, uint64_t number) {
    return Ask(entry, round, 0, RequestBytes(Kind::kRead, number, {0, 1, 2, 3, 4, 5, 6, 7}));
  }

  FakeWorkers workers{2};
  const TableEntry whole = Entry(Tensor("t", DType::kUInt8, {-1}, ExchangeKind::kTable));
  TableEntry lost = Entry(Tensor("u", DType::kUInt8, {-1}, ExchangeKind::kTable));
  uint64_t whole_round = 0, lost_round = 0;
};

TEST_F(PartTableCopiesTest, ALostCopyIsFilledWhileRowsChange) {
  EXPECT_EQ(workers.service.counters().lacking_blocks, 1u);
  EXPECT_EQ(StateIn(Ask(lost, &lost_round, 0, RequestBytes(Kind::kState, 2, {}))),
            CopyState::kLost);
  Begin();
  std::string copied = CopyOne(3, 0);  // rows 0 to 4: of them 2 is a changed one
  EXPECT_EQ(StateIn(Ask(lost, &lost_round, 0, FillBytes(3, 0, copied))), CopyState::kFilling);
  EXPECT_NE(Read(lost, &lost_round, 3).find("has none of its rows"), std::string::npos);
  // Of the rows that change now, 2 is there, 5 is to come, and 7 has never been changed.
  Change(whole, &whole_round, 3, {2, 5, 7});
  Change(lost, &lost_round, 3, {2, 5, 7});
  copied = CopyOne(4, 5);
  EXPECT_EQ(StateIn(Ask(lost, &lost_round, 0, FillBytes(4, 5, copied))), CopyState::kFilling);
  copied = CopyOne(4, 7);
  EXPECT_EQ(StateIn(Ask(lost, &lost_round, 0, FillBytes(4, 7, copied))), CopyState::kWhole);
  EXPECT_EQ(workers.service.counters().lacking_blocks, 0u);
  const std::string expected = Read(whole, &whole_round, 4);
  EXPECT_EQ(expected.size(), 8 * 2 * sizeof(float));
  EXPECT_EQ(Read(lost, &lost_round, 4), expected);
}

TEST_F(PartTableCopiesTest, RowsOfAnotherChangeAreNotFilledIn) {
  Begin();
  const std::string copied = CopyOne(3, 0);
  EXPECT_NE(Ask(lost, &lost_round, 0, FillBytes(4, 0, copied)).find("has none of its rows"),
            std::string::npos);
  EXPECT_NE(CopyOne(2, 0).find("has none of its rows"), std::string::npos);
  EXPECT_NE(CopyOne(4, 0).find("has none of its rows"), std::string::npos);
}

TEST_F(PartTableCopiesTest, RowsAreFilledInInOrder) {
  Begin();
  const std::string copied = CopyOne(3, 5);
  EXPECT_NE(Ask(lost, &lost_round, 0, FillBytes(3, 5, copied)).find("those from 0 on are next"),
            std::string::npos);
}

TEST_F(PartTableCopiesTest, AChangeThatAWorkerMayHaveBeenRefusedIsNotWaitedFor) {
  // Worker 1 asks for change 2 before the filling begins, worker 0 afterwards.
  workers.Push(lost, 1, 2, RequestBytes(Kind::kUpdate, 2, {}));
  EXPECT_NE(Answer(1).find("has none of its rows"), std::string::npos);
  Ask(lost, &lost_round, 0, RefillBytes(SomeTable(), 2));
  const std::string copied = CopyOne(2, 0);
  EXPECT_NE(Ask(lost, &lost_round, 0, FillBytes(2, 0, copied)).find("has none of its rows"),
            std::string::npos);
  EXPECT_NE(
      Ask(lost, &lost_round, 0, RequestBytes(Kind::kUpdate, 2, {})).find("has none of its rows"),
      std::string::npos);
  Change(whole, &whole_round, 2, {2});
  EXPECT_EQ(StateIn(Ask(lost, &lost_round, 0, FillBytes(3, 0, CopyOne(3, 0)))),
            CopyState::kFilling);
}

TEST_F(PartTableCopiesTest, ACopyThatIsNotLostIsNotFilled) {
  EXPECT_NE(Ask(whole, &whole_round, 0, RefillBytes(SomeTable(), 2)).find("that is not lost"),
            std::string::npos);
}

TEST_F(PartTableCopiesTest, BytesThatAreNoRowsOfThisTableGetASentence) {
  Begin();
  std::string fill = FillBytes(3, 0, CopyOne(3, 0));
  fill.pop_back();
  EXPECT_NE(Ask(lost, &lost_round, 0, fill).find("worker 0: it fills in 1 rows of the block with"),
            std::string::npos);
  EXPECT_NE(CopyOne(3, 8).find("it asks for a copy of no row"), std::string::npos);
}

}  // namespace
}  // namespace byteps

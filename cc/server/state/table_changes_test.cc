// Changes of a table are made when all workers have asked for them (protocol rule 38).
#include "cc/server/state/table_changes.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

using Verdict = TableChanges::Verdict;

TEST(TableChangesTest, AChangeIsReadyWhenAllHaveAskedForIt) {
  TableChanges changes(3);
  EXPECT_EQ(changes.OnChange(2, 0, 0), Verdict::kWait);
  EXPECT_EQ(changes.OnChange(0, 0, 0), Verdict::kWait);
  EXPECT_EQ(changes.OnChange(0, 0, 0), Verdict::kWait);  // it asks again
  EXPECT_EQ(changes.waiting(), (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(changes.OnChange(1, 0, 0), Verdict::kReady);
  changes.Made();
  EXPECT_TRUE(changes.waiting().empty());
  EXPECT_EQ(changes.made(), 1u);
}

TEST(TableChangesTest, OneThatIsMadeIsNotMadeAgain) {
  TableChanges changes(1);
  EXPECT_EQ(changes.OnChange(0, 0, 0), Verdict::kReady);
  changes.Made();
  EXPECT_EQ(changes.OnChange(0, 0, 0), Verdict::kIsIn);
}

TEST(TableChangesTest, OneThatFailsIsAskedForAgain) {
  TableChanges changes(2);
  changes.OnChange(0, 0, 0);
  EXPECT_EQ(changes.OnChange(1, 0, 0), Verdict::kReady);
  changes.Failed();
  EXPECT_EQ(changes.OnChange(1, 0, 0), Verdict::kWait);
  EXPECT_EQ(changes.OnChange(0, 0, 0), Verdict::kReady);
}

TEST(TableChangesTest, RowsThatLackAChangeAreLost) {
  TableChanges changes(2);
  EXPECT_TRUE(changes.MayRead(0));
  EXPECT_FALSE(changes.MayRead(1));
  EXPECT_EQ(changes.OnChange(0, 1, 0), Verdict::kLost);
  changes.Lose();
  EXPECT_FALSE(changes.MayRead(0));
  EXPECT_EQ(changes.OnChange(1, 0, 0), Verdict::kLost);
}

// A copy that is lost takes part again from the first change on that nobody can have missed (rule
// 39): change 7 may have been refused where the copy was before, too.
TEST(TableChangesTest, ALostCopyTakesPartAgainInChangesThatNobodyHasMissed) {
  TableChanges changes(2);
  changes.Lose();
  EXPECT_EQ(changes.OnChange(1, 6, 0), Verdict::kLost);
  changes.Refill(7);  // worker 0 is still to ask for it
  EXPECT_EQ(changes.begun(), 8u);
  EXPECT_EQ(changes.OnChange(0, 7, 0), Verdict::kMissed);
  EXPECT_FALSE(changes.MayFill(7));
  EXPECT_TRUE(changes.MayFill(8));
  EXPECT_FALSE(changes.MayRead(8));
  EXPECT_EQ(changes.OnChange(1, 8, 0), Verdict::kWait);
  EXPECT_EQ(changes.OnChange(0, 8, 0), Verdict::kReady);
  changes.Made();
  EXPECT_FALSE(changes.MayFill(8));
  EXPECT_TRUE(changes.MayFill(9));
  changes.EndFilling();
  EXPECT_TRUE(changes.MayRead(9));
  EXPECT_TRUE(changes.MayCopy(9));
  EXPECT_FALSE(changes.MayCopy(8));
}

TEST(TableChangesTest, ACopyThatIsFilledAndMissesAChangeIsLostAgain) {
  TableChanges changes(1);
  changes.Lose();
  changes.Refill(3);
  EXPECT_EQ(changes.OnChange(0, 5, 0), Verdict::kLost);
  changes.Lose();
  EXPECT_FALSE(changes.MayFill(4));
  changes.Refill(5);
  EXPECT_EQ(changes.begun(), 6u);
}

TEST(TableChangesTest, AWithdrawalFailsTheChangeThatOthersWaitFor) {
  TableChanges changes(2);
  EXPECT_FALSE(changes.Withdraw(0, 0));  // nobody waits
  changes.OnChange(1, 0, 0);
  EXPECT_TRUE(changes.Withdraw(0, 0));
}

TEST(TableChangesTest, WhoeverLeavesATrainingFailsItsChangesAlsoThoseThatAreAskedForLater) {
  TableChanges changes(3);
  changes.OnChange(1, 0, 4);
  changes.OnChange(2, 0, 5);  // it has left training 4, too
  EXPECT_EQ(changes.Leave(5), std::vector<int32_t>{1});
  EXPECT_EQ(changes.OnChange(1, 0, 4), Verdict::kLeft);
  EXPECT_TRUE(changes.Leave(5).empty());
  EXPECT_EQ(changes.OnChange(0, 0, 5), Verdict::kWait);
  EXPECT_EQ(changes.OnChange(1, 0, 5), Verdict::kReady);
}

TEST(TableChangesTest, AWithdrawalOfAnOldTrainingFailsNothingOfTheNext) {
  TableChanges changes(2);
  changes.OnChange(1, 0, 5);
  EXPECT_FALSE(changes.Withdraw(0, 4));
  EXPECT_EQ(changes.OnChange(0, 0, 5), Verdict::kReady);
}

// Protocol rule 41.
TEST(TableChangesTest, ACopyIsFreedWhenAllHaveReleasedIt) {
  TableChanges changes(3);
  EXPECT_EQ(changes.released_by(), -1);
  for (const int32_t worker : {1, 1, 0, 1}) changes.Release(worker);  // some say it again
  EXPECT_EQ(changes.released_by(), 1);
  EXPECT_FALSE(changes.is_freed());
  EXPECT_TRUE(changes.MayRead(0));
  changes.Release(2);
  EXPECT_TRUE(changes.is_freed());
  EXPECT_FALSE(changes.MayRead(0) || changes.MayCopy(0) || changes.MayFill(0));
}

// Protocol rule 41.
TEST(TableChangesTest, AFreedCopyIsNotLostAndALostOneIsFreed) {
  TableChanges changes(1);
  changes.Lose();
  changes.Release(0);
  EXPECT_TRUE(changes.is_freed());
  EXPECT_FALSE(changes.is_lost());
  changes.Lose();
  EXPECT_TRUE(changes.is_freed());
}

// Protocol rule 41.
TEST(TableChangesTest, ACopyThatIsFilledIsFreed) {
  TableChanges changes(2);
  changes.Lose();
  changes.Release(1);
  changes.Refill(3);
  EXPECT_TRUE(changes.MayFill(4));
  changes.Release(0);
  EXPECT_TRUE(changes.is_freed());
  EXPECT_FALSE(changes.MayFill(4));
}

}  // namespace
}  // namespace byteps

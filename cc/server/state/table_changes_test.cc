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

TEST(TableChangesTest, AWithdrawalFailsTheChangeThatOthersWaitFor) {
  TableChanges changes(2);
  EXPECT_FALSE(changes.Withdraw(0, 0));  // nobody waits
  changes.OnChange(1, 0, 0);
  EXPECT_TRUE(changes.Withdraw(0, 0));
}

TEST(TableChangesTest, AWithdrawalOfAnOldTrainingFailsNothingOfTheNext) {
  TableChanges changes(2);
  changes.OnChange(1, 0, 5);
  EXPECT_FALSE(changes.Withdraw(0, 4));
  EXPECT_EQ(changes.OnChange(0, 0, 5), Verdict::kReady);
}

}  // namespace
}  // namespace byteps

#include "cc/worker/row_choices.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

TEST(RowChoicesTest, RowsThatManyTouchAreAddedUpOnServers) {
  const RowChoices choices(/*has_links=*/false);
  EXPECT_TRUE(choices.PaysToSum(8, 800, 415)) << "words of BERT";
  EXPECT_TRUE(choices.PaysToSum(4, 400, 304)) << "tables of Criteo's shape";
  EXPECT_FALSE(choices.PaysToSum(8, 800, 710)) << "nearly uniform";
  EXPECT_FALSE(choices.PaysToSum(2, 200, 100)) << "two workers, all rows the same";
  EXPECT_FALSE(choices.PaysToSum(4, 0, 0));
}

TEST(RowChoicesTest, OverLinksFewerSharedRowsAreEnough) {
  const RowChoices choices(/*has_links=*/true);
  EXPECT_TRUE(choices.PaysToSum(8, 800, 710)) << "nearly uniform";
  EXPECT_TRUE(choices.PaysToSum(2, 200, 175)) << "films, two workers";
  EXPECT_FALSE(choices.PaysToSum(2, 200, 199));
  EXPECT_FALSE(choices.PaysToSum(2, 0, 0));
}

TEST(RowChoicesTest, TheFirstRowsDecide) {
  RowChoices choices(/*has_links=*/false);
  EXPECT_FALSE(choices.Sums("a"));
  choices.Note("a", 4, 0, 0);
  choices.Note("a", 4, 400, 100);
  EXPECT_TRUE(choices.Sums("a"));
  choices.Note("a", 4, 400, 400);
  EXPECT_TRUE(choices.Sums("a"));
  choices.Note("b", 4, 400, 400);
  EXPECT_FALSE(choices.Sums("b"));
  EXPECT_EQ(choices.counts().summed, 1u);
  EXPECT_EQ(choices.counts().gathered, 1u);
  choices.Forget("a");
  EXPECT_FALSE(choices.Sums("a"));
}

}  // namespace
}  // namespace byteps

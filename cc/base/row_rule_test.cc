#include "cc/base/row_rule.h"

#include <gtest/gtest.h>

#include <limits>

namespace byteps {
namespace {

TEST(RowRuleTest, SaysWhatItIs) {
  RowRule rule;
  EXPECT_EQ(rule.ToString(), "SGD");
  rule.kind = RowRule::Kind::kAdam;
  rule.numbers = {0.9, 0.999, 1e-7};
  EXPECT_EQ(rule.ToString(), "LazyAdam (beta_1 0.9, beta_2 0.999, epsilon 1e-07)");
  rule.kind = RowRule::Kind::kAdagrad;
  rule.numbers = {1e-7};
  rule.first_state = 0.5;
  EXPECT_EQ(rule.ToString(), "Adagrad (epsilon 1e-07, accumulators from 0.5)");
}

TEST(RowRuleTest, EachKindHasItsStates) {
  for (uint32_t kind = 0; kind < RowRule::kNumKinds; ++kind) {
    RowRule rule;
    rule.kind = static_cast<RowRule::Kind>(kind);
    EXPECT_LE(rule.NumStates(), RowRule::kMostStates);
    EXPECT_EQ(rule.NumStates() == 0, rule.kind == RowRule::Kind::kSgd);
    EXPECT_EQ(rule.StateWidth(7), rule.kind == RowRule::Kind::kRowWiseAdagrad ? 1u : 7u);
    EXPECT_FALSE(rule.ToString().empty());
  }
}

TEST(RowRuleTest, NumbersAreFiniteAndNotBelowZero) {
  RowRule rule;
  EXPECT_TRUE(rule.IsSane());
  rule.numbers[4] = -1;
  EXPECT_FALSE(rule.IsSane());
  rule.numbers[4] = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(rule.IsSane());
  rule = RowRule();
  rule.first_state = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(rule.IsSane());
}

TEST(RowRuleTest, FtrlNeedsALearningRate) {
  RowRule rule;
  EXPECT_TRUE(rule.CheckRate(0).ok());
  rule.kind = RowRule::Kind::kFtrl;
  EXPECT_TRUE(rule.CheckRate(0.1).ok());
  EXPECT_EQ(rule.CheckRate(0).code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace byteps

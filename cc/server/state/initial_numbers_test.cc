#include "cc/server/state/initial_numbers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace byteps {
namespace {

struct Moments {
  double mean = 0, deviation = 0, least = 1e9, largest = -1e9;
};

Moments MomentsOf(TableSpec::Distribution distribution, double first, double second) {
  TableSpec spec;
  spec.distribution = distribution;
  spec.first = first;
  spec.second = second;
  spec.seed = 5;
  constexpr int kRows = 4000, kColumns = 16;
  Moments moments;
  double squares = 0;
  for (int row = 0; row < kRows; ++row) {
    for (int column = 0; column < kColumns; ++column) {
      const double number = InitialNumber(spec, row, column);
      moments.mean += number / (kRows * kColumns);
      squares += number * number / (kRows * kColumns);
      moments.least = std::min(moments.least, number);
      moments.largest = std::max(moments.largest, number);
    }
  }
  moments.deviation = std::sqrt(squares - moments.mean * moments.mean);
  return moments;
}

TEST(InitialNumbersTest, HaveTheirDistribution) {
  const Moments constant = MomentsOf(TableSpec::Distribution::kConstant, 3, 9);
  EXPECT_EQ(constant.least, 3);
  EXPECT_EQ(constant.largest, 3);
  const Moments uniform = MomentsOf(TableSpec::Distribution::kUniform, -1, 3);
  EXPECT_NEAR(uniform.mean, 1, 0.02);
  EXPECT_NEAR(uniform.deviation, 4 / std::sqrt(12.0), 0.02);
  EXPECT_GE(uniform.least, -1);
  EXPECT_LT(uniform.largest, 3);
  const Moments normal = MomentsOf(TableSpec::Distribution::kNormal, 1, 0.5);
  EXPECT_NEAR(normal.mean, 1, 0.01);
  EXPECT_NEAR(normal.deviation, 0.5, 0.01);
  EXPECT_GT(normal.largest, 2.5);
  const Moments truncated = MomentsOf(TableSpec::Distribution::kTruncated, 0, 1);
  EXPECT_NEAR(truncated.mean, 0, 0.02);
  EXPECT_NEAR(truncated.deviation, 0.8796, 0.01);
  EXPECT_LE(std::max(-truncated.least, truncated.largest), 2);
}

// Any server makes the same rows, also of another build: these bits stay.
TEST(InitialNumbersTest, TheBitsStayTheSame) {
  TableSpec spec;
  spec.distribution = TableSpec::Distribution::kNormal;
  spec.second = 1;
  spec.seed = 42;
  EXPECT_EQ(InitialNumber(spec, 0, 0), InitialNumber(spec, 0, 0));
  EXPECT_NE(InitialNumber(spec, 0, 1), InitialNumber(spec, 1, 0));
  TableSpec other = spec;
  other.seed = 43;
  EXPECT_NE(InitialNumber(spec, 0, 0), InitialNumber(other, 0, 0));
  other = spec;
  other.block = 1;
  other.num_blocks = 2;  // a row's numbers do not depend on where it is
  EXPECT_EQ(InitialNumber(spec, 7, 3), InitialNumber(other, 7, 3));
}

}  // namespace
}  // namespace byteps

#include "cc/base/float_mode.h"

#include <gtest/gtest.h>

#include <cfenv>
#include <limits>

namespace byteps {
namespace {

constexpr float kSmallest = std::numeric_limits<float>::min();

// Computed when it is called, not by the compiler.
float Product(volatile float a, volatile float b) { return a * b; }

bool IsRoundedUp() {
  volatile float one = 1.0f, little = std::numeric_limits<float>::epsilon() / 4;
  volatile float sum = one + little;
  return sum > 1.0f;
}

TEST(ScopedFloatModeTest, DenormalNumbersAreZero) {
  const float denormal = Product(kSmallest, 0.5f);
  ASSERT_GT(denormal, 0.0f);
  {
    const ScopedFloatMode mode;
    EXPECT_EQ(Product(kSmallest, 0.5f), 0.0f);
    // As an operand, too.
    const float result = Product(denormal, 4.0f);
    EXPECT_EQ(result, 0.0f);
  }
  EXPECT_EQ(Product(kSmallest, 0.5f), denormal);
}

TEST(ScopedFloatModeTest, RoundsToNearestAndGivesBackWhatWas) {
  ASSERT_EQ(std::fesetround(FE_UPWARD), 0);
  ASSERT_TRUE(IsRoundedUp());
  {
    const ScopedFloatMode mode;
    EXPECT_FALSE(IsRoundedUp());
  }
  EXPECT_TRUE(IsRoundedUp());
  std::fesetround(FE_TONEAREST);
}

}  // namespace
}  // namespace byteps

#include "cc/worker/link_meter.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

constexpr int64_t kMillisecond = 1000 * 1000;

TEST(LinkMeterTest, CountsWhatIsTakenInWhileMoreWaits) {
  LinkMeter meter;
  int64_t now = 0;
  meter.Note(now, 0, true);
  for (int i = 0; i < 40; ++i) {
    EXPECT_FALSE(meter.is_complete());
    meter.Note(now += 10 * kMillisecond, 1000 * 1000, true);
  }
  EXPECT_TRUE(meter.is_complete());
  EXPECT_EQ(meter.bytes_per_second(), 100u * 1000 * 1000);
}

TEST(LinkMeterTest, PausesDoNotCount) {
  LinkMeter meter;
  int64_t now = 0;
  for (int i = 0; i < 40; ++i) {
    meter.Note(now += 500 * kMillisecond, 7, true);  // the end of a pause
    meter.Note(now += 10 * kMillisecond, 1000 * 1000, false);
  }
  EXPECT_TRUE(meter.is_complete());
  EXPECT_EQ(meter.bytes_per_second(), 100u * 1000 * 1000);
}

TEST(LinkMeterTest, StallsDoNotCountMuch) {
  LinkMeter meter;
  int64_t now = 0;
  for (int i = 0; !meter.is_complete(); ++i) {
    const int64_t stall = i % 3 == 0 ? 3000 * kMillisecond : 0;
    meter.Note(now += 10 * kMillisecond + stall, 1000 * 1000, true);
  }
  EXPECT_EQ(meter.bytes_per_second(), 100u * 1000 * 1000);
}

}  // namespace
}  // namespace byteps

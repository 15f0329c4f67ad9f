#include "cc/worker/state/link_meter.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

constexpr int64_t kMillisecond = 1000 * 1000;

TEST(LinkMeterTest, CountsWhatIsTakenInWhileMoreWaits) {
  LinkMeter meter;
  int64_t now = 0;
  meter.Note(now, 0, true);
  for (int i = 0; i < 70; ++i) {
    EXPECT_FALSE(meter.is_complete());
    meter.Note(now += 10 * kMillisecond, 1000 * 1000, true);
  }
  EXPECT_TRUE(meter.is_complete());
  EXPECT_EQ(meter.bytes_per_second(), 100u * 1000 * 1000);
}

TEST(LinkMeterTest, PausesDoNotCount) {
  LinkMeter meter;
  int64_t now = 0;
  for (int i = 0; i < 70; ++i) {
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

// Servers that wait for memory: for some steps nothing moves as fast as it will.
TEST(LinkMeterTest, SlowBeginningsDoNotCount) {
  LinkMeter meter;
  int64_t now = 0;
  for (int i = 0; !meter.is_complete(); ++i)
    meter.Note(now += 20 * kMillisecond, i < 25 ? 700 * 1000 : 60 * 1000 * 1000, true);
  EXPECT_EQ(meter.bytes_per_second(), 3000u * 1000 * 1000);
}

TEST(LinkMeterTest, ARateThatChangesAllTheTimeIsTakenAtLast) {
  LinkMeter meter;
  int64_t now = 0;
  int notes = 0;
  for (; !meter.is_complete() && notes < 1000; ++notes)
    meter.Note(now += 20 * kMillisecond, (notes + 3) / 15 % 2 == 0 ? 1000 : 2000 * 1000, true);
  EXPECT_LT(notes, 200);
  EXPECT_EQ(meter.bytes_per_second(), 100u * 1000 * 1000);
}

}  // namespace
}  // namespace byteps

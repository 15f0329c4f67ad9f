#include "cc/coordinator/state/tuning.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

constexpr uint64_t kMegabit = 1000 * 1000 / 8;

JobDescription TwoWorkersOnTwoHosts() {
  JobDescription job;
  job.worker_hosts = {"a", "b"};
  job.server_hosts = {"a"};
  return job;
}

TEST(SizesForTest, FollowTheLink) {
  const TunedSizes slow = SizesFor(250 * kMegabit, 0, 1, EngineOptions());
  EXPECT_EQ(slow.credit_bytes, 625000u);
  EXPECT_EQ(slow.part_bytes, 64u * 1024);
  EXPECT_EQ(slow.unsent_bytes, 64u * 1024);
  EXPECT_EQ(SizesFor(1000 * kMegabit, 0, 1, EngineOptions()).unsent_bytes, 250000u);
  EXPECT_EQ(SizesFor(1000 * kMegabit, 0, 1, EngineOptions()).credit_bytes, 2500000u);
  EXPECT_EQ(SizesFor(1000 * kMegabit, 0, 1, EngineOptions()).part_bytes, 2500000u / 16);
  // Two round trips of 5 ms more.
  EXPECT_EQ(SizesFor(1000 * kMegabit, 5000000, 1, EngineOptions()).credit_bytes, 3750000u);
}

TEST(SizesForTest, HaveLimits) {
  EXPECT_EQ(SizesFor(0, 0, 1, EngineOptions()).credit_bytes, 256u * 1024);
  EXPECT_EQ(SizesFor(0, 0, 1, EngineOptions()).part_bytes, 32u * 1024);
  EXPECT_EQ(SizesFor(~uint64_t{0}, ~uint64_t{0}, 1, EngineOptions()).credit_bytes, 16u << 20);
}

TEST(SizesForTest, KeepAllServersBusy) {
  EXPECT_EQ(SizesFor(1000 * kMegabit, 0, 8, EngineOptions()).part_bytes, 2500000u / 16);
  EXPECT_EQ(SizesFor(1000 * kMegabit, 0, 48, EngineOptions()).part_bytes, 2500000u / 96);
  EXPECT_EQ(SizesFor(300 * kMegabit, 0, 4, EngineOptions()).part_bytes, 64u * 1024);
  EXPECT_EQ(SizesFor(300 * kMegabit, 0, 12, EngineOptions()).part_bytes, 750000u / 24);
  EXPECT_EQ(SizesFor(1000 * kMegabit, 0, 48, EngineOptions()).credit_bytes, 2500000u);
  EXPECT_EQ(SizesFor(1000 * kMegabit, 0, 512, EngineOptions()).part_bytes, 16u * 1024);
}

// Where so many servers would make parts so short that their number is what costs.
TEST(SizesForTest, KeepPartsFromGettingTooShortForAFastLink) {
  const TunedSizes fast = SizesFor(25000 * kMegabit, 0, 256, EngineOptions());
  EXPECT_EQ(fast.part_bytes, 128u * 1024);
  EXPECT_EQ(fast.credit_bytes, 512u * 128 * 1024) << "two parts for each server";
  const TunedSizes larger = SizesFor(25000 * kMegabit, 0, 2048, EngineOptions());
  EXPECT_EQ(larger.part_bytes, 128u * 1024);
  EXPECT_EQ(larger.credit_bytes, 125000000u) << "40 ms";
  EXPECT_EQ(SizesFor(4000 * kMegabit, 0, 256, EngineOptions()).part_bytes, 50000u);
  EngineOptions fixed;
  fixed.flow.part_bytes = 1 << 20;
  EXPECT_EQ(SizesFor(25000 * kMegabit, 0, 256, fixed).credit_bytes, 16u << 20);
}

TEST(SizesForTest, LeaveWhatIsFixed) {
  EngineOptions options;
  options.flow.credit_bytes = 7;
  EXPECT_EQ(SizesFor(1000 * kMegabit, 0, 1, options).credit_bytes, 0u);
  EXPECT_EQ(SizesFor(1000 * kMegabit, 0, 1, options).part_bytes, 2500000u / 16);
  options.flow.part_bytes = 7;
  EXPECT_EQ(SizesFor(1000 * kMegabit, 0, 1, options).part_bytes, 0u);
}

TEST(TuningTest, FollowsTheSlowestLinkOnce) {
  Tuning tuning(TwoWorkersOnTwoHosts());
  EXPECT_FALSE(tuning.OnReport(1, {1000 * kMegabit, 0}).has_value());
  const auto sizes = tuning.OnReport(0, {250 * kMegabit, 0});
  ASSERT_TRUE(sizes.has_value());
  EXPECT_EQ(sizes->credit_bytes, 625000u);
  EXPECT_FALSE(tuning.OnReport(0, {500 * kMegabit, 0}).has_value());
}

TEST(TuningTest, CompressesWhereTheWireIsSlowerThanTheCodec) {
  const uint64_t codec = 16000000000;  // bytes of float32 in a second
  EXPECT_TRUE(CompressesAt(10000 * kMegabit, codec));
  EXPECT_TRUE(CompressesAt(40000 * kMegabit, codec));
  EXPECT_FALSE(CompressesAt(50000 * kMegabit, codec));
  EXPECT_FALSE(CompressesAt(10000 * kMegabit, codec / 6));
  Tuning tuning(TwoWorkersOnTwoHosts());
  EXPECT_FALSE(tuning.OnReport(1, {100000 * kMegabit, 0, codec}).has_value());
  EXPECT_TRUE(tuning.OnReport(0, {1000 * kMegabit, 0, codec})->compresses) << "the slowest link";
}

TEST(TuningTest, SaysWhichLinkIsSlow) {
  Tuning alike(TwoWorkersOnTwoHosts());
  alike.OnReport(0, {1000 * kMegabit, 0});
  alike.OnReport(1, {250 * kMegabit, 0});
  EXPECT_FALSE(alike.LinksDiffer());
  Tuning unlike(TwoWorkersOnTwoHosts());
  unlike.OnReport(1, {10000 * kMegabit, 0});
  unlike.OnReport(0, {240 * kMegabit, 0});
  EXPECT_TRUE(unlike.LinksDiffer());
  EXPECT_EQ(unlike.Links(), "30 MB/s (worker 0) to 1250 MB/s");
}

TEST(TuningTest, NotOnOneHost) {
  JobDescription job = TwoWorkersOnTwoHosts();
  job.worker_hosts = {"a", "a"};
  Tuning tuning(job);
  EXPECT_FALSE(tuning.OnReport(0, {1, 0}).has_value());
  EXPECT_FALSE(tuning.OnReport(1, {1, 0}).has_value());
}

TEST(TuningTest, ARoundThatSomebodyHasBegunKeepsItsCut) {
  Tuning tuning(TwoWorkersOnTwoHosts());
  tuning.OnRoundProgress(0, {{{17, 4}, {18, 9}}});
  EXPECT_FALSE(tuning.all_paused());
  tuning.OnRoundProgress(1, {{{17, 5}}});
  EXPECT_TRUE(tuning.all_paused());
  EXPECT_EQ(tuning.FirstRoundOfAll(17), 5u);
  EXPECT_EQ(tuning.FirstRoundOfAll(18), 9u);
  EXPECT_EQ(tuning.FirstRoundOfAll(19), 0u);
}

TEST(TuningTest, DoesNotWaitForWhoHasGone) {
  Tuning tuning(TwoWorkersOnTwoHosts());
  tuning.OnRoundProgress(0, {});
  tuning.OnDeparted(1);
  EXPECT_TRUE(tuning.all_paused());
}

}  // namespace
}  // namespace byteps

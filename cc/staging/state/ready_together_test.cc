#include "cc/staging/state/ready_together.h"

#include <gtest/gtest.h>

#include "cc/staging/state/testing/group_under_test.h"

namespace byteps {
namespace {

LaunchReport ReportOf(uint64_t key) {
  LaunchReport report;
  report.key = key;
  return report;
}

TEST(ReadyTogetherTest, WhatNobodyHoldsIsDueAtOnceAndOnce) {
  ReadyTogether ready;
  ready.Add(ReportOf(1));
  ASSERT_EQ(ready.TakeReports().size(), 1U);
  EXPECT_TRUE(ready.TakeReports().empty());
  ready.Add(GroupUnderTest::NewTensor());
  ASSERT_EQ(ready.TakeTensors().size(), 1U);
  EXPECT_TRUE(ready.TakeTensors().empty());
}

TEST(ReadyTogetherTest, WhatIsHeldGoesTogetherInItsOrder) {
  ReadyTogether ready;
  const TensorPointer tensor = GroupUnderTest::NewTensor();
  ready.Hold();
  ready.Add(ReportOf(2));
  ready.Add(tensor);
  EXPECT_TRUE(ready.is_held());
  EXPECT_TRUE(ready.TakeReports().empty());
  EXPECT_TRUE(ready.TakeTensors().empty());
  ready.Add(ReportOf(1));
  ready.Release();
  EXPECT_FALSE(ready.is_held());
  const std::vector<LaunchReport> reports = ready.TakeReports();
  ASSERT_EQ(reports.size(), 2U);
  EXPECT_EQ(reports[0].key, 2U);
  EXPECT_EQ(reports[1].key, 1U);
  EXPECT_EQ(ready.TakeTensors(), std::vector<TensorPointer>{tensor});
}

TEST(ReadyTogetherTest, TheLastOfThoseWhoHoldReleases) {
  ReadyTogether ready;
  ready.Hold();
  ready.Hold();
  ready.Add(ReportOf(1));
  ready.Release();
  EXPECT_TRUE(ready.TakeReports().empty());
  ready.Release();
  EXPECT_EQ(ready.TakeReports().size(), 1U);
}

}  // namespace
}  // namespace byteps

#include "cc/worker/state/arrival_reports.h"

#include <gtest/gtest.h>

namespace byteps {
namespace {

WorkerLag Lag(uint64_t contributions, uint64_t recent_ms, uint64_t max_ms) {
  WorkerLag lag;
  lag.contributions = contributions;
  lag.recent_ns = recent_ms * 1000000;
  lag.max_ns = max_ms * 1000000;
  return lag;
}

ArrivalReport Report(std::vector<ArrivalReport::Row> rows) {
  ArrivalReport report;
  report.rows = std::move(rows);
  return report;
}

TEST(ArrivalReportsTest, IsEmptyBeforeTheFirstReport) {
  const ArrivalReports reports(/*num_workers=*/2, /*num_servers=*/1);
  EXPECT_TRUE(reports.Lags().empty());
  EXPECT_EQ(reports.Text(), "");
}

TEST(ArrivalReportsTest, AddsServersUpAndWeighsTheirRecentLags) {
  ArrivalReports reports(/*num_workers=*/2, /*num_servers=*/2);
  ASSERT_TRUE(reports.Take(0, Report({{1, Lag(3, 10, 40)}})).ok());
  ASSERT_TRUE(reports.Take(1, Report({{1, Lag(1, 50, 20)}})).ok());
  const std::vector<WorkerLag> lags = reports.Lags();
  ASSERT_EQ(lags.size(), 2u);
  EXPECT_EQ(lags[0].contributions, 0u);
  EXPECT_EQ(lags[1].contributions, 4u);
  EXPECT_EQ(lags[1].max_ns, 40'000'000u);
  EXPECT_EQ(lags[1].recent_ns, 20'000'000u);  // (3 * 10 + 1 * 50) / 4
  EXPECT_EQ(reports.Text(), "\n  so far, after the first of each round: rank 1 by 20 ms");
}

TEST(ArrivalReportsTest, ANewReportReplacesTheOneBefore) {
  ArrivalReports reports(/*num_workers=*/1, /*num_servers=*/1);
  ASSERT_TRUE(reports.Take(0, Report({{0, Lag(3, 10, 40)}})).ok());
  ASSERT_TRUE(reports.Take(0, Report({{0, Lag(5, 20, 50)}})).ok());
  EXPECT_EQ(reports.Lags()[0].contributions, 5u);
}

TEST(ArrivalReportsTest, RefusesAWorkerThatTheJobDoesNotHave) {
  ArrivalReports reports(/*num_workers=*/2, /*num_servers=*/4);
  const Status status = reports.Take(3, Report({{2, Lag(1, 1, 1)}}));
  EXPECT_EQ(status.message(), "server 3 reported on worker 2 of 2");
}

}  // namespace
}  // namespace byteps

#include "cc/base/event_record.h"

#include <gtest/gtest.h>

#include "cc/base/clock.h"

namespace byteps {
namespace {

TEST(EventRecordTest, HasEventsBelowTheLogsLevelAndNothingElse) {
  LogInfo("before", {"process_here", {}});
  ProcessEvents().Start(10);
  const int64_t begin = WallNanos();
  ASSERT_FALSE(LogEnabled(LogLevel::kInfo));
  LogInfo("worker 1 is here", {"process_here", {{"peer_rank", 1}}});
  LogInfo("no event");
  const EventRecord::Recording found = ProcessEvents().Take();
  ProcessEvents().Stop();
  LogInfo("after", {"process_here", {}});
  ASSERT_EQ(found.events.size(), 1);
  EXPECT_EQ(found.events[0].name, "process_here");
  EXPECT_EQ(found.events[0].message, "worker 1 is here");
  EXPECT_EQ(found.events[0].fields, (LogFields{{"peer_rank", 1}}));
  EXPECT_GE(found.events[0].time_ns, begin);
  EXPECT_TRUE(ProcessEvents().Take().events.empty());
}

TEST(EventRecordTest, CountsWhatIsBeyondItsLimit) {
  EventRecord record;
  record.Start(2);
  for (int i = 0; i < 5; ++i) record.Add("m", {"stalled", {}});
  const EventRecord::Recording found = record.Take();
  EXPECT_EQ(found.events.size(), 2);
  EXPECT_EQ(found.dropped, 3);
  record.Add("m", {"stalled", {}});
  EXPECT_EQ(record.Take().events.size(), 1);
}

}  // namespace
}  // namespace byteps

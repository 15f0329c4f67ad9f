#include "cc/worker/timeline.h"

#include <gtest/gtest.h>

#include <string>

#include "cc/base/clock.h"

namespace byteps {
namespace {

TableEntry EntryOf(uint32_t parts) {
  TableEntry entry;
  entry.parts.resize(parts);
  for (uint32_t part = 0; part < parts; ++part) entry.parts[part].server = part;
  return entry;
}

// An exchange from beginning to end, if somebody wants to know.
void Record(Timeline* timeline, const std::string& name, uint32_t parts,
            const Status& status = OkStatus()) {
  TensorDescription tensor;
  tensor.name = name;
  std::unique_ptr<ExchangeTrace> trace = timeline->NewTrace(tensor, 5, -1);
  if (trace == nullptr) return;
  trace->OnPlaced(EntryOf(parts), WallNanos());
  timeline->Add(std::move(trace), status);
}

TEST(TimelineTest, RecordsBetweenStartAndStopOnly) {
  Timeline timeline;
  Record(&timeline, "before", 1);
  timeline.Start(100);
  Record(&timeline, "a", 2);
  Record(&timeline, "b", 1, Unavailable("server 0 is lost"));
  timeline.Stop();
  Record(&timeline, "after", 1);
  const Timeline::Recording recording = timeline.Take();
  ASSERT_EQ(recording.exchanges.size(), 2u);
  const ExchangeTrace& a = *recording.exchanges[0];
  EXPECT_EQ(a.tensor.name, "a");
  EXPECT_EQ(a.round, 5u);
  EXPECT_EQ(a.priority, -1);
  EXPECT_EQ(a.status, StatusCode::kOk);
  EXPECT_GT(a.enqueue_ns, 0);
  EXPECT_LE(a.enqueue_ns, a.place_ns);
  EXPECT_LE(a.place_ns, a.done_ns);
  ASSERT_EQ(a.parts.size(), 2u);
  EXPECT_EQ(a.parts[1].server, 1);
  EXPECT_EQ(a.parts[1].push_ns, 0);
  EXPECT_EQ(recording.exchanges[1]->status, StatusCode::kUnavailable);
  EXPECT_TRUE(timeline.Take().exchanges.empty());
}

TEST(TimelineTest, KeepsAnExchangeThatEndsAfterStopOut) {
  Timeline timeline;
  timeline.Start(100);
  std::unique_ptr<ExchangeTrace> trace = timeline.NewTrace({}, 0, 0);
  timeline.Stop();
  timeline.Add(std::move(trace), OkStatus());
  EXPECT_TRUE(timeline.Take().exchanges.empty());
}

TEST(TimelineTest, CountsWhatIsBeyondTheLimit) {
  Timeline timeline;
  timeline.Start(3);
  Record(&timeline, "a", 2);
  Record(&timeline, "b", 2);
  Record(&timeline, "c", 1);  // would fit, and would leave a hole where "b" is missing
  const Timeline::Recording full = timeline.Take();
  ASSERT_EQ(full.exchanges.size(), 1u);
  EXPECT_EQ(full.dropped, 2u);
  Record(&timeline, "d", 1);
  const Timeline::Recording next = timeline.Take();
  EXPECT_TRUE(next.exchanges.empty());
  EXPECT_EQ(next.dropped, 1u);
}

TEST(TimelineTest, TakesTheServersTimesFromTheReply) {
  FrameHeader header;
  header.begin_time_ns = 1;
  header.receive_time_ns = 2;
  header.send_time_ns = 3;
  PartTrace part;
  part.reply_begin_ns = 4;
  part.OnReply(header, WallNanos());
  EXPECT_EQ(part.arrival_begin_ns, 1);
  EXPECT_EQ(part.arrival_end_ns, 2);
  EXPECT_EQ(part.answer_ns, 3);
  EXPECT_EQ(part.reply_begin_ns, 4);
  EXPECT_GT(part.reply_end_ns, 4);
}

TEST(TimelineTest, WaitsForInputAreRecordedUpToTheLimit) {
  Timeline timeline;
  timeline.AddInput({1, 2});
  timeline.Start(2);
  for (int64_t begin : {10, 20, 30}) timeline.AddInput({begin, begin + 5});
  const Timeline::Recording recording = timeline.Take();
  ASSERT_EQ(recording.inputs.size(), 2u);
  EXPECT_EQ(recording.inputs[1].begin_ns, 20);
  EXPECT_EQ(recording.inputs[1].end_ns, 25);
  timeline.Start(1);
  timeline.Stop();
  timeline.AddInput({40, 45});
  EXPECT_TRUE(timeline.Take().inputs.empty());
}

}  // namespace
}  // namespace byteps

#include "cc/server/server_timeline.h"

#include <gtest/gtest.h>

#include <string>

namespace byteps {
namespace {

Reply ReplyOf(uint64_t round, int32_t worker) {
  Reply reply;
  reply.sum_ns = 30;
  FrameHeader& header = reply.frame.header;
  header.round = round;
  header.part = 2;
  header.worker = worker;
  header.begin_time_ns = 10;
  header.receive_time_ns = 20;
  header.send_time_ns = 40;
  return reply;
}

TEST(ServerTimelineTest, RecordsBetweenStartAndStopOnly) {
  const std::string name = "a";
  ServerTimeline timeline;
  timeline.Add(name, ReplyOf(0, 1));
  timeline.Start(10);
  timeline.Add(name, ReplyOf(1, 1));
  timeline.Stop();
  timeline.Add(name, ReplyOf(2, 1));
  const ServerTimeline::Recording recording = timeline.Take();
  ASSERT_EQ(recording.pushes.size(), 1u);
  const ServedPush& push = recording.pushes[0];
  EXPECT_EQ(*push.tensor, "a");
  EXPECT_EQ(push.round, 1u);
  EXPECT_EQ(push.part, 2u);
  EXPECT_EQ(push.worker, 1);
  EXPECT_EQ(push.arrival_begin_ns, 10);
  EXPECT_EQ(push.arrival_end_ns, 20);
  EXPECT_EQ(push.sum_ns, 30);
  EXPECT_EQ(push.answer_ns, 40);
  EXPECT_TRUE(timeline.Take().pushes.empty());
}

TEST(ServerTimelineTest, EachPushHasALine) {
  const std::string name = "a";
  ServerTimeline timeline;
  timeline.Start(10);
  timeline.Add(name, ReplyOf(0, 1));
  timeline.Add(name, ReplyOf(7, 1));
  const std::string lines = ServerTimeline::Lines(timeline.Take(), 3, 1'000'003, 5);
  EXPECT_EQ(lines.substr(lines.find('\n')),
            "\n"
            R"(,{"ph":"X","name":"a","cat":"served","ts":0,"dur":0,"pid":1000003,"tid":1,)"
            R"("args":{"server":3,"tensor":"a","part":2,"round":7,"worker":1,"status":"OK",)"
            R"("arrival_began":10,"arrived":20,"summed":30,"answered":40,"epoch":5}})");
  EXPECT_EQ(ServerTimeline::Lines(timeline.Take(), 3, 1'000'003, 5), "");
}

TEST(ServerTimelineTest, CountsWhatIsBeyondTheLimit) {
  const std::string name = "a";
  ServerTimeline timeline;
  timeline.Start(2);
  timeline.Add(name, ReplyOf(0, 0));
  EXPECT_EQ(timeline.Take().pushes.size(), 1u);
  timeline.Add(name, ReplyOf(1, 0));
  timeline.Add(name, ReplyOf(2, 0));
  const ServerTimeline::Recording rest = timeline.Take();
  EXPECT_EQ(rest.pushes.size(), 1u);
  EXPECT_EQ(rest.dropped, 1u);
}

}  // namespace
}  // namespace byteps

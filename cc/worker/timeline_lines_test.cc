#include "cc/worker/timeline_lines.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

namespace byteps {
namespace {

Timeline::Recording RecordingOf(std::unique_ptr<ExchangeTrace> trace) {
  Timeline::Recording recording;
  recording.exchanges.push_back(std::move(trace));
  return recording;
}

std::unique_ptr<ExchangeTrace> Trace() {
  auto trace = std::make_unique<ExchangeTrace>();
  trace->tensor.name = "a \"b\"";
  trace->round = 7;
  trace->priority = -2;
  trace->enqueue_ns = 1'000'999;
  trace->done_ns = 3'000'000;
  return trace;
}

TEST(TimelineLinesTest, WithoutExchangesThereAreNone) { EXPECT_EQ(TimelineLines({}, 0, 0), ""); }

TEST(TimelineLinesTest, EachPartHasALine) {
  auto trace = Trace();
  trace->place_ns = 1'100'000;
  trace->parts.resize(2);
  trace->parts[1].bytes = 12;
  trace->parts[1].server = 3;
  trace->parts[1].push_ns = 1'200'000;
  const std::string lines = TimelineLines(RecordingOf(std::move(trace)), 4, 5);
  const size_t second = lines.find("\n,");
  ASSERT_NE(second, std::string::npos);
  EXPECT_EQ(lines.find('\n', second + 1), std::string::npos);
  EXPECT_EQ(lines.substr(second),
            "\n"
            R"(,{"ph":"X","name":"sum round 7","ts":1000,"dur":2000,"cat":"part","args":{)"
            R"("worker":4,"tensor":"a \"b\"","kind":"sum","dtype":"float32","round":7,)"
            R"("priority":-2,"status":"OK","part":1,"parts":2,"bytes":12,"server":3,)"
            R"("enqueued":1000999,"placed":1100000,"computed":null,"reduced":null,)"
            R"("copied_out":null,"pushed":1200000,"arrival_began":null,"arrived":null,)"
            R"("answered":null,"reply_began":null,"reply_received":null,"copied_in":null,)"
            R"("broadcast":null,"done":3000000,"epoch":5},"pid":4,"tid":0})");
}

TEST(TimelineLinesTest, OneThatFailsBeforeItsPartsAreKnownHasALine) {
  auto trace = Trace();
  trace->status = StatusCode::kUnavailable;
  const std::string line = TimelineLines(RecordingOf(std::move(trace)), 0, 0);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_NE(line.find(R"("part":0,"parts":1,"bytes":0,"server":-1,)"), std::string::npos) << line;
  EXPECT_NE(line.find(R"("placed":null,)"), std::string::npos) << line;
}

}  // namespace
}  // namespace byteps

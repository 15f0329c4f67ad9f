#include "cc/server/server_timeline.h"

#include <algorithm>

#include "cc/base/json.h"

namespace byteps {
namespace {

constexpr int64_t kNanosPerMicro = 1000;

}  // namespace

std::string ServerTimeline::Lines(const Recording& recording, int32_t server, int64_t process,
                                  int64_t epoch) {
  std::string lines;
  for (const ServedPush& push : recording.pushes) {
    const int64_t begin = push.arrival_begin_ns / kNanosPerMicro;
    const int64_t end = push.arrival_end_ns / kNanosPerMicro;
    lines += lines.empty() ? "," : "\n,";
    JsonObject event(&lines);
    event.String("ph", "X");
    event.String("name", *push.tensor);
    event.String("cat", "served");
    event.Number("ts", begin);
    event.Number("dur", std::max<int64_t>(0, end - begin));
    event.Number("pid", process);
    event.Number("tid", push.worker);
    JsonObject args = event.Object("args");
    args.Number("server", server);
    args.String("tensor", *push.tensor);
    args.Number("part", push.part);
    args.Number("round", static_cast<int64_t>(push.round));
    args.Number("worker", push.worker);
    args.String("status", StatusCodeName(push.status));
    args.Number("arrival_began", push.arrival_begin_ns);
    args.Number("arrived", push.arrival_end_ns);
    args.Number("summed", push.sum_ns);
    args.Number("answered", push.answer_ns);
    args.Number("epoch", epoch);
  }
  return lines;
}

}  // namespace byteps

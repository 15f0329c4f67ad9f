#include "cc/worker/timeline_lines.h"

#include <algorithm>

#include "cc/base/dtype.h"
#include "cc/base/json.h"

namespace byteps {
namespace {

constexpr int64_t kNanosPerMicro = 1000;

void AddTime(JsonObject* args, const char* name, int64_t time_ns) {
  if (time_ns == 0)
    args->Null(name);
  else
    args->Number(name, time_ns);
}

void AddArgs(JsonObject* event, const ExchangeTrace& trace, size_t number, int32_t worker,
             int64_t epoch) {
  // One that has failed before its parts were known counts as one part.
  const PartTrace part = trace.parts.empty() ? PartTrace() : trace.parts[number];
  JsonObject args = event->Object("args");
  args.Number("worker", worker);
  args.String("tensor", trace.tensor.name);
  args.String("kind", ExchangeKindName(trace.tensor.kind));
  args.String("dtype", DTypeName(trace.tensor.dtype));
  args.Number("round", static_cast<int64_t>(trace.round));
  args.Number("priority", trace.priority);
  args.String("status", StatusCodeName(trace.status));
  args.Number("part", static_cast<int64_t>(number));
  args.Number("parts", static_cast<int64_t>(std::max<size_t>(1, trace.parts.size())));
  args.Number("bytes", static_cast<int64_t>(part.bytes));
  args.Number("server", part.server);
  args.Number("enqueued", trace.enqueue_ns);
  AddTime(&args, "placed", trace.place_ns);
  AddTime(&args, "computed", part.computed_ns);
  AddTime(&args, "reduced", part.reduce_ns);
  AddTime(&args, "copied_out", part.copy_out_ns);
  AddTime(&args, "pushed", part.push_ns);
  AddTime(&args, "arrival_began", part.arrival_begin_ns);
  AddTime(&args, "arrived", part.arrival_end_ns);
  AddTime(&args, "answered", part.answer_ns);
  AddTime(&args, "reply_began", part.reply_begin_ns);
  AddTime(&args, "reply_received", part.reply_end_ns);
  AddTime(&args, "copied_in", part.copy_in_ns);
  AddTime(&args, "broadcast", part.broadcast_ns);
  args.Number("done", trace.done_ns);
  args.Number("epoch", epoch);
}

}  // namespace

std::string TimelineLines(const Timeline::Recording& recording, int32_t worker, int64_t epoch) {
  std::string lines;
  for (const auto& trace : recording.exchanges) {
    const std::string name =
        ExchangeKindName(trace->tensor.kind) + (" round " + std::to_string(trace->round));
    const int64_t begin = trace->enqueue_ns / kNanosPerMicro;
    for (size_t part = 0; part < std::max<size_t>(1, trace->parts.size()); ++part) {
      lines += lines.empty() ? "," : "\n,";
      JsonObject event(&lines);
      event.String("ph", "X");
      event.String("name", name);
      event.Number("ts", begin);
      event.Number("dur", trace->done_ns / kNanosPerMicro - begin);
      event.String("cat", "part");
      AddArgs(&event, *trace, part, worker, epoch);
      event.Number("pid", worker);
      event.Number("tid", 0);
    }
  }
  return lines;
}

}  // namespace byteps

// What this process records: exchanges, the log's events, waits for input.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "cc/base/clock.h"
#include "cc/base/event_record.h"
#include "cc/engine/engine.h"
#include "cc/python/bindings.h"
#include "cc/python/without_lock.h"
#include "cc/worker/timeline.h"
#include "cc/worker/timeline_lines.h"

namespace py = pybind11;

namespace byteps {
namespace {

// Lines, how many more exchanges there were than could be recorded, and waits for input.
std::tuple<std::string, uint64_t, std::vector<std::pair<int64_t, int64_t>>> TakeTimeline(
    int32_t worker, int64_t epoch) {
  const Timeline::Recording recording = ProcessTimeline().Take();
  std::vector<std::pair<int64_t, int64_t>> inputs;
  inputs.reserve(recording.inputs.size());
  for (const InputWait& wait : recording.inputs) inputs.emplace_back(wait.begin_ns, wait.end_ns);
  return {TimelineLines(recording, worker, epoch), recording.dropped, inputs};
}

std::pair<py::list, uint64_t> TakeEvents() {
  const EventRecord::Recording recording = ProcessEvents().Take();
  py::list events;
  for (const RecordedEvent& event : recording.events) {
    py::dict fields;
    for (const auto& [name, value] : event.fields) fields[py::str(name)] = value;
    events.append(py::make_tuple(event.time_ns, event.name, event.message, fields));
  }
  return {events, recording.dropped};
}

}  // namespace

void DefineTimeline(py::module_& module) {
  module.def(
      "timeline_start", [](uint64_t max_parts) { ProcessTimeline().Start(max_parts); },
      py::arg("max_parts"), "Begins to record exchanges, with nothing recorded.");
  module.def("timeline_stop", [] { ProcessTimeline().Stop(); });
  module.def("shift_wall_clock", &ShiftWallClock, py::arg("nanoseconds"),
             "For tests: the times that this process records are so much ahead from now on.");
  module.def("timeline_take", &TakeTimeline, py::arg("worker"), py::arg("epoch"), ReleaseLock(),
             "What was recorded since the last call: lines of a Chrome trace, how many more "
             "exchanges there were than could be recorded, and a list of pairs, the begin and end "
             "of each wait for input. Times are wall clock nanoseconds.");
  module.def(
      "events_start", [](uint64_t max_events) { ProcessEvents().Start(max_events); },
      py::arg("max_events"), "Begins to record the log's events, with nothing recorded.");
  module.def("events_stop", [] { ProcessEvents().Stop(); });
  module.def("events_take", &TakeEvents,
             "What was recorded since the last call: a list of tuples (time, name, message, "
             "fields), and how many more there were than could be recorded.");
  module.def("wall_nanos", &WallNanos, "The time as timelines have it.");
  module.def("note_batch", &NoteBatch, py::arg("begin_ns"), py::arg("end_ns"), py::arg("samples"),
             "The training has waited for a batch of so many samples meanwhile.");
}

}  // namespace byteps

#include "cc/python/counters.h"

#include <pybind11/stl.h>

#include <algorithm>
#include <memory>

#include "cc/engine/engine.h"
#include "cc/worker/worker.h"

namespace py = pybind11;

namespace byteps {
namespace {

void AddVanCounters(const VanCounters& values, py::dict* counters) {
  (*counters)["frames_sent"] = values.frames_sent;
  (*counters)["frames_received"] = values.frames_received;
  (*counters)["payload_bytes_sent"] = values.payload_bytes_sent;
  (*counters)["payload_bytes_received"] = values.payload_bytes_received;
  (*counters)["memory_bytes_read"] = values.memory_bytes_read;
  (*counters)["rdma_bytes_sent"] = values.rdma_bytes_sent;
  (*counters)["rdma_bytes_received"] = values.rdma_bytes_received;
  (*counters)["bytes_copied"] = values.bytes_copied;
  (*counters)["wire_bytes_sent"] = values.wire_bytes_sent;
  (*counters)["wire_bytes_received"] = values.wire_bytes_received;
}

py::list PathCountersList(const std::vector<PathCounters>& paths) {
  py::list list;
  for (const PathCounters& values : paths) {
    py::dict counters;
    counters["server"] = values.server;
    counters["path"] = values.path;
    counters["pushed_bytes"] = values.pushed_bytes;
    counters["received_bytes"] = values.received_bytes;
    counters["in_flight_bytes"] = values.in_flight_bytes;
    counters["reconnects"] = values.reconnects;
    list.append(counters);
  }
  return list;
}

}  // namespace

py::dict WorkerCountersDict() {
  py::dict counters;
  const std::shared_ptr<Worker> worker = CurrentWorker();
  if (worker == nullptr) return counters;
  const WorkerCounters values = worker->counters();
  counters["started_exchanges"] = values.started_exchanges;
  counters["exchanges"] = values.exchanges;
  counters["failed_exchanges"] = values.failed_exchanges;
  counters["pushed_parts"] = values.pushed_parts;
  counters["pushed_bytes"] = values.pushed_bytes;
  counters["uncompressed_bytes"] = values.uncompressed_bytes;
  counters["credit_bytes"] = values.credit_bytes;
  counters["received_bytes"] = values.received_bytes;
  counters["received_parts"] = values.received_parts;
  counters["exchanging_seconds"] = static_cast<double>(values.exchanging_ns) * 1e-9;
  counters["steps"] = values.steps.steps;
  counters["unmeasured_steps"] = values.steps.unmeasured_steps;
  counters["step_seconds"] = static_cast<double>(values.steps.step_ns) * 1e-9;
  counters["exposed_seconds"] = static_cast<double>(values.steps.exposed_ns) * 1e-9;
  counters["input_seconds"] = static_cast<double>(values.steps.input_ns) * 1e-9;
  counters["samples"] = values.steps.samples;
  counters["in_flight_bytes"] = values.in_flight_bytes;
  counters["unanswered_bytes"] = values.unanswered_bytes;
  counters["queued_parts"] = values.queued_parts;
  counters["retried_parts"] = values.retried_parts;
  const RowChoices::Counts rows = worker->row_choices().counts();
  counters["row_sum_tensors"] = rows.summed;
  counters["row_gather_tensors"] = rows.gathered;
  counters["lost_servers"] = values.lost_servers;
  counters["returned_servers"] = values.returned_servers;
  counters["paths"] = PathCountersList(values.paths);
  AddVanCounters(values.van, &counters);
  return counters;
}

py::dict ServerCountersDict(const Server& server) {
  const SummationCounters values = server.counters();
  py::dict counters;
  counters["pushes"] = values.pushes;
  counters["pushed_bytes"] = values.pushed_bytes;
  counters["late_pushes"] = values.late_pushes;
  counters["replies"] = values.replies;
  counters["replied_bytes"] = values.replied_bytes;
  counters["rounds_completed"] = values.rounds_completed;
  counters["accumulator_bytes"] = values.accumulator_bytes;
  counters["lacking_blocks"] = values.lacking_blocks;
  py::dict van;
  AddVanCounters(server.van_counters(), &van);
  counters["van"] = van;
  return counters;
}

py::list TensorCountersList(const Server& server) {
  py::list list;
  for (const TensorCounters& values : server.tensor_counters()) {
    py::dict counters;
    counters["name"] = values.tensor.name;
    counters["dtype"] = DTypeName(values.tensor.dtype);
    counters["shape"] = values.tensor.shape;
    counters["kind"] = ExchangeKindName(values.tensor.kind);
    counters["average"] = values.tensor.average;
    counters["pushes"] = values.pushes;
    counters["pushed_bytes"] = values.pushed_bytes;
    counters["replied_bytes"] = values.replied_bytes;
    counters["rounds_completed"] = values.rounds_completed;
    list.append(counters);
  }
  return list;
}

py::list LagsList(const std::vector<WorkerLag>& lags) {
  py::list list;
  for (size_t rank = 0; rank < lags.size(); ++rank) {
    const WorkerLag& lag = lags[rank];
    const double count = static_cast<double>(std::max<uint64_t>(1, lag.contributions));
    py::dict values;
    values["rank"] = rank;
    values["contributions"] = lag.contributions;
    values["dropped"] = lag.dropped;
    values["mean_ms"] = static_cast<double>(lag.total_ns) * 1e-6 / count;
    values["recent_ms"] = static_cast<double>(lag.recent_ns) * 1e-6;
    values["max_ms"] = static_cast<double>(lag.max_ns) * 1e-6;
    list.append(values);
  }
  return list;
}

}  // namespace byteps

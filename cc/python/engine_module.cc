// tf_byteps._engine: the engine for Python, without TensorFlow.
//
// Used by tf_byteps/runtime, server.py and scheduler.py for the processes' life, and by tests
// and benchmarks to exchange NumPy arrays. Calls that may wait release the interpreter's lock.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "cc/base/clock.h"
#include "cc/base/event_record.h"
#include "cc/base/fork.h"
#include "cc/base/job.h"
#include "cc/base/logging.h"
#include "cc/base/tensor_description.h"
#include "cc/codec/choice.h"
#include "cc/coordinator/coordinator.h"
#include "cc/coordinator/state/placement.h"
#include "cc/engine/engine.h"
#include "cc/python/bindings.h"
#include "cc/server/server.h"
#include "cc/sum/sum.h"
#include "cc/wire/handshake.h"
#include "cc/worker/timeline.h"
#include "cc/worker/timeline_lines.h"
#include "cc/worker/worker.h"

namespace py = pybind11;

namespace byteps {
namespace {

Status NotRunning() {
  return FailedPrecondition("tf_byteps is not running here: call tf_byteps.init() first");
}

// Releases the interpreter's lock for a scope. Python ends a daemon thread that asks for the lock
// while the interpreter goes away; unlike that of pybind11's own class, this destructor lets it:
// otherwise the process would be aborted. So nothing may be thrown in the scope on such a thread.
class WithoutLock {
 public:
  WithoutLock() : thread_(PyEval_SaveThread()) {}
  // NOLINTNEXTLINE(bugprone-*)
  ~WithoutLock() noexcept(false) { PyEval_RestoreThread(thread_); }
  WithoutLock(const WithoutLock&) = delete;
  WithoutLock& operator=(const WithoutLock&) = delete;

 private:
  PyThreadState* const thread_;
};

using ReleaseLock = py::call_guard<WithoutLock>;

// A forked child inherits the object but none of its threads: to destroy it would be to wait for
// them for ever.
template <typename Peer>
struct DeleteUnlessForked {
  void operator()(Peer* peer) const {
    if (CheckNotForked().ok()) delete peer;
  }
};
template <typename Peer>
using PeerHolder = std::unique_ptr<Peer, DeleteUnlessForked<Peer>>;

template <typename Peer>
PeerHolder<Peer> Listening(const std::string& address, uint16_t port,
                           const EngineOptions& options) {
  PeerHolder<Peer> peer(new Peer(options));
  ThrowIfError(peer->Listen(address, port));
  return peer;
}

// An exchange that Python waits for.
class Handle {
 public:
  void Finish(const Status& status) {
    std::lock_guard<std::mutex> lock(mutex_);
    status_ = status;
    done_ = true;
    changed_.notify_all();
  }
  bool done() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return done_;
  }
  Status WaitFor(double timeout) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (changed_.wait_for(lock, std::chrono::duration<double>(timeout), [this] { return done_; }))
      return status_;
    return DeadlineExceeded("the exchange is not done after " + std::to_string(timeout) + " s");
  }
  // The result as an array; waits.
  py::array Wait(double timeout) {
    Status status;
    {
      WithoutLock released;
      status = WaitFor(timeout);
    }
    ThrowIfError(status);
    return given_output ? *given_output : py::array(dtype, shape, output.data());
  }

  std::vector<int64_t> ReceivedRows() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return done_ ? received_rows : std::vector<int64_t>();
  }

  py::dtype dtype;
  std::vector<int64_t> shape;
  std::vector<uint8_t> output;         // written by engine threads until done
  std::vector<int64_t> received_rows;  // of each worker, if the tensor HasOwnRows; like `output`
  py::array input;
  std::optional<py::array> given_output;  // the caller's array, instead of `output`

 private:
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  Status status_;
};

// Whether the interpreter is going away.
bool IsFinalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing();
#else
  return _Py_IsFinalizing();
#endif
}

// Python objects may only be dropped with the interpreter's lock held, and the engine drops handles
// on its own threads.
std::shared_ptr<Handle> NewHandle() {
  return std::shared_ptr<Handle>(new Handle, [](Handle* handle) {
    // A thread that asks for the lock while the interpreter goes away would abort the process.
    if (IsFinalizing()) return;
    py::gil_scoped_acquire acquire;
    delete handle;
  });
}

TensorDescription Describe(const std::string& name, const std::string& dtype,
                           std::vector<int64_t> shape, const std::string& kind, bool average,
                           int32_t root_rank, int32_t backup_workers, const std::string& codec,
                           int32_t staleness = kUnboundedStaleness, int32_t grace_ms = kNoGrace) {
  TensorDescription tensor;
  tensor.name = name;
  tensor.shape = std::move(shape);
  tensor.average = average;
  tensor.root_rank = root_rank;
  tensor.backup_workers = backup_workers;
  tensor.codec = codec;
  tensor.staleness = staleness;
  tensor.grace_ms = grace_ms;
  if (!ParseDType(dtype, &tensor.dtype)) {
    throw EngineError{InvalidArgument(
        "tensor \"" + name + "\": dtype " + dtype +
        " cannot be exchanged; use float32, float64, float16, bfloat16, int8, uint8, "
        "int32 or int64")};
  }
  if (!ParseExchangeKind(kind, &tensor.kind)) {
    throw EngineError{
        InvalidArgument("tensor \"" + name + "\": unknown operation \"" + kind +
                        "\"; use sum, min, max, broadcast, gather, store, alltoall or product")};
  }
  return tensor;
}

void CheckOutput(const py::array& output, const py::array& input, const std::string& name) {
  const bool same_shape = output.ndim() == input.ndim() &&
                          std::equal(input.shape(), input.shape() + input.ndim(), output.shape());
  if (!same_shape || !output.dtype().equal(input.dtype()) || !output.writeable() ||
      (output.flags() & py::array::c_style) == 0 || output.data() == input.data()) {
    throw EngineError{InvalidArgument("tensor \"" + name +
                                      "\": the output must be another writable C-contiguous array "
                                      "of the input's shape and dtype")};
  }
}

std::shared_ptr<Handle> Exchange(const py::array& given, const std::string& name,
                                 const std::string& kind, bool average, int32_t root_rank,
                                 std::optional<int32_t> priority,
                                 const std::optional<std::string>& dtype,
                                 const std::optional<py::array>& output, int32_t backup_workers,
                                 const std::string& codec, int32_t staleness,
                                 std::vector<int64_t> splits, int32_t grace_ms, bool contributes) {
  std::shared_ptr<Handle> handle = NewHandle();
  handle->input = py::array::ensure(given, py::array::c_style);
  const py::array& array = handle->input;
  handle->dtype = array.dtype();
  handle->shape.assign(array.shape(), array.shape() + array.ndim());

  ExchangeRequest request;
  request.tensor =
      Describe(name, dtype.value_or(py::str(array.dtype().attr("name"))), handle->shape, kind,
               average, root_rank, backup_workers, codec, staleness, grace_ms);
  if (DTypeSize(request.tensor.dtype) != static_cast<size_t>(array.itemsize())) {
    throw EngineError{InvalidArgument(
        "tensor \"" + name + "\": dtype " + *dtype + " takes " +
        std::to_string(DTypeSize(request.tensor.dtype)) + " bytes an element, but the array is " +
        std::string(py::str(array.dtype())) + ", which takes " + std::to_string(array.itemsize()))};
  }
  if (request.tensor.kind == ExchangeKind::kRowSum) {
    throw EngineError{InvalidArgument("tensor \"" + name +
                                      "\": rows are summed by push_pull of tf.IndexedSlices only")};
  }
  request.priority = priority.value_or(kBackwardOrder);
  request.input = array.data();
  request.keep_alive = handle;
  Handle* const raw = handle.get();  // kept alive by keep_alive
  request.done = [raw](const Status& status) { raw->Finish(status); };
  request.splits = std::move(splits);
  request.contributes = contributes;
  if (request.tensor.HasOwnRows()) {
    if (output.has_value()) {
      throw EngineError{InvalidArgument("tensor \"" + name + "\": a " + kind + " takes no output")};
    }
    if (handle->shape.empty())
      throw EngineError{InvalidArgument("tensor \"" + name + "\": a scalar has no rows")};
    request.gather_rows = handle->shape[0];
    request.tensor.shape[0] = -1;
    const uint64_t row_bytes = request.tensor.ByteCount();
    request.allocate_output = [raw, row_bytes](const std::vector<int64_t>& rows) -> void* {
      int64_t total = 0;
      for (const int64_t count : rows) total += count;
      raw->received_rows = rows;
      raw->shape[0] = total;
      raw->output.resize(std::max<uint64_t>(1, total * row_bytes));
      return raw->output.data();
    };
  } else if (output.has_value()) {
    CheckOutput(*output, array, name);
    handle->given_output = output;
    request.output = handle->given_output->mutable_data();
    request.output_changes = true;
  } else {
    handle->output.resize(request.tensor.ByteCount());
    request.output = handle->output.data();
  }
  WithoutLock released;
  Enqueue(std::move(request));
  return handle;
}

// What tf_byteps/declaration.py describes.
TensorDescription Describe(const py::handle& declaration) {
  const auto field = [&declaration](const char* name) { return declaration.attr(name); };
  return Describe(field("name").cast<std::string>(), field("dtype").cast<std::string>(),
                  field("shape").cast<std::vector<int64_t>>(), field("kind").cast<std::string>(),
                  field("average").cast<bool>(), field("root_rank").cast<int32_t>(),
                  field("backup_workers").cast<int32_t>(), field("codec").cast<std::string>(),
                  kUnboundedStaleness, field("grace_ms").cast<int32_t>());
}

void DeclareAll(const py::sequence& declarations) {
  std::vector<TensorDescription> tensors;
  tensors.reserve(declarations.size());
  for (const py::handle declaration : declarations) tensors.push_back(Describe(declaration));
  WithoutLock released;
  Declare(std::move(tensors));
}

py::dict ResidualsDict() {
  const std::shared_ptr<Worker> worker = CurrentWorker();
  std::map<std::string, Residual> residuals;
  if (worker != nullptr) {
    WithoutLock released;
    residuals = worker->Residuals();
  }
  py::dict result;
  for (const auto& [name, residual] : residuals) {
    const py::array_t<float> values(static_cast<py::ssize_t>(residual.values.size()),
                                    residual.values.data());
    result[py::str(name)] = py::make_tuple(residual.codec, values);
  }
  return result;
}

void RestoreResiduals(
    const std::map<std::string, std::tuple<std::string, std::vector<float>>>& given) {
  std::map<std::string, Residual> residuals;
  for (const auto& [name, residual] : given)
    residuals[name] = {std::get<0>(residual), std::get<1>(residual)};
  const std::shared_ptr<Worker> worker = CurrentWorker();
  if (worker != nullptr) worker->RestoreResiduals(std::move(residuals));
}

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

// Milliseconds, by rank.
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

void StartServerTimeline(Server& server, uint64_t max_replies) {
  ServerTimeline* const timeline = server.timeline();
  if (timeline == nullptr) throw EngineError{FailedPrecondition("the server has no job yet")};
  timeline->Start(max_replies);
}

std::pair<std::string, uint64_t> TakeServerTimeline(Server& server, int32_t rank, int64_t process,
                                                    int64_t epoch) {
  ServerTimeline* const timeline = server.timeline();
  if (timeline == nullptr) return {"", 0};
  const ServerTimeline::Recording recording = timeline->Take();
  return {ServerTimeline::Lines(recording, rank, process, epoch), recording.dropped};
}

std::vector<std::vector<std::pair<uint64_t, int32_t>>> PlaceShapes(
    const std::vector<std::vector<int64_t>>& shapes, const std::vector<std::string>& worker_hosts,
    const std::vector<std::string>& server_hosts, uint64_t part_bytes) {
  std::vector<TensorDescription> tensors(shapes.size());
  std::vector<Placement::Request> requests;
  for (size_t i = 0; i < shapes.size(); ++i) {
    tensors[i].shape = shapes[i];
    requests.push_back({&tensors[i], nullptr});
  }
  Placement placement(worker_hosts, server_hosts, part_bytes);
  std::vector<std::vector<std::pair<uint64_t, int32_t>>> result;
  for (const std::vector<PartPlacement>& parts : placement.Place(requests)) {
    result.emplace_back();
    for (const PartPlacement& part : parts)
      result.back().emplace_back(part.element_count, part.server);
  }
  return result;
}

void SetLogLevelByName(const std::string& name) {
  if (name == "DEBUG") return SetLogLevel(LogLevel::kDebug);
  if (name == "INFO") return SetLogLevel(LogLevel::kInfo);
  if (name == "WARNING") return SetLogLevel(LogLevel::kWarning);
  if (name == "ERROR") return SetLogLevel(LogLevel::kError);
  throw EngineError{
      InvalidArgument("unknown log level \"" + name + "\"; use DEBUG, INFO, WARNING or ERROR")};
}

// `process` has the fields of each line; None: lines are text.
void SetLogFormat(const std::optional<std::map<std::string, py::object>>& process) {
  if (!process.has_value()) return LogAsText();
  LogFields fields;
  for (const auto& [name, value] : *process) {
    if (py::isinstance<py::int_>(value))
      fields.emplace_back(name, value.cast<int64_t>());
    else
      fields.emplace_back(name, value.cast<std::string>());
  }
  LogAsJson(fields);
}

py::object LostPeerTuple() {
  const std::shared_ptr<Worker> worker = CurrentWorker();
  const std::optional<LostPeer> lost = worker != nullptr ? worker->lost_peer() : std::nullopt;
  if (!lost.has_value()) return py::none();
  Endpoint address;
  if (lost->role == Role::kCoordinator) address = worker->job().coordinator_endpoint;
  if (lost->role == Role::kServer) address = worker->job().server_endpoints[lost->rank];
  const bool listens = lost->role != Role::kWorker;
  return py::make_tuple(lost->role == Role::kCoordinator ? "scheduler" : RoleName(lost->role),
                        lost->rank, listens ? address.ToString() : "");
}

void DefineErrors(py::module_& module) {
  static const py::handle error_class =
      py::exception<EngineError>(module, "EngineError", PyExc_RuntimeError).release();
  py::register_exception_translator(
      [](std::exception_ptr exception) {  // NOLINT(performance-*): pybind11 demands it
        try {
          if (exception) std::rethrow_exception(exception);
        } catch (const EngineError& error) {
          py::object instance = error_class(error.status.message());
          instance.attr("code") = StatusCodeName(error.status.code());
          PyErr_SetObject(error_class.ptr(), instance.ptr());
        }
      });
}

void DefineProcesses(py::module_& module) {
  py::class_<Coordinator, PeerHolder<Coordinator>>(
      module, "Coordinator", "Tensor table and liveness of a job; lives in the scheduler.")
      .def(py::init(&Listening<Coordinator>), py::arg("address"), py::arg("port"),
           py::arg("options"))
      .def_property_readonly("endpoint", &Coordinator::endpoint)
      .def(
          "start",
          [](Coordinator& self, const JobDescription& job) { ThrowIfError(self.Start(job)); },
          py::arg("job"), ReleaseLock())
      .def("wait", &Coordinator::Wait, py::arg("timeout"), ReleaseLock(),
           "True once every worker has left or somebody was lost; False after `timeout` seconds.")
      .def_property_readonly("failure", &Coordinator::failure)
      .def_property_readonly("lost_servers", &Coordinator::lost_servers)
      .def(
          "readmit",
          [](Coordinator& self, int32_t rank, const Endpoint& endpoint, const std::string& host) {
            ThrowIfError(self.Readmit(rank, endpoint, host));
          },
          py::arg("rank"), py::arg("endpoint"), py::arg("host"), ReleaseLock(),
          "A lost server has been started again and is about to join.")
      .def("stop", &Coordinator::Stop, ReleaseLock());
  py::class_<Server, PeerHolder<Server>>(
      module, "Server", "A summation server, in a process of its own or colocated in a worker's.")
      .def(py::init(&Listening<Server>), py::arg("address"), py::arg("port"), py::arg("options"))
      .def_property_readonly("endpoint", &Server::endpoint)
      .def(
          "start",
          [](Server& self, const JobDescription& job, int32_t rank) {
            ThrowIfError(self.Start(job, rank));
          },
          py::arg("job"), py::arg("rank"), ReleaseLock())
      .def("wait", &Server::Wait, py::arg("timeout"), ReleaseLock(),
           "True once the job is over or the scheduler is lost; False after `timeout` seconds.")
      .def_property_readonly("failure", &Server::failure)
      .def("counters", &ServerCountersDict)
      .def("tensor_counters", &TensorCountersList)
      .def("arrival_lags", [](const Server& self) { return LagsList(self.arrival_lags()); })
      .def("timeline_start", &StartServerTimeline, py::arg("max_replies"),
           "Begins to record pushes and replies, with nothing recorded. After `start`.")
      .def("timeline_take", &TakeServerTimeline, py::arg("rank"), py::arg("process"),
           py::arg("epoch"), ReleaseLock(),
           "What was recorded since the last call, as lines of a Chrome trace, and how many more "
           "there were than could be recorded.")
      .def("stop", &Server::Stop, ReleaseLock());
}

void DefineWorker(py::module_& module) {
  module.def(
      "start_worker",
      [](const JobDescription& job, int32_t rank, int32_t local_rank, int32_t local_size) {
        ThrowIfError(StartWorker(job, {rank, job.num_workers(), local_rank, local_size}));
      },
      py::arg("job"), py::arg("rank"), py::arg("local_rank"), py::arg("local_size"), ReleaseLock());
  module.def("stop_worker", &StopWorker, ReleaseLock(),
             "Says goodbye; pending exchanges end with CANCELLED.");
  module.def("worker_running", [] { return CurrentWorker() != nullptr; });
  module.def("worker_failure", [] {
    const std::shared_ptr<Worker> worker = CurrentWorker();
    return worker != nullptr ? worker->failure().message() : std::string();
  });
  module.def(
      "lost_peer", &LostPeerTuple,
      "Who ended the job by being lost: role, rank, and where it listened; None: nobody was.");
  module.def("worker_counters", &WorkerCountersDict);
  module.def("arrival_lags", [] {
    const std::shared_ptr<Worker> worker = CurrentWorker();
    return worker != nullptr ? LagsList(worker->arrival_lags()) : py::list();
  });
  module.def(
      "next_rounds",
      [] {
        const std::shared_ptr<Worker> worker = CurrentWorker();
        return worker != nullptr ? worker->NextRounds() : std::map<std::string, uint64_t>();
      },
      ReleaseLock(), "The round of the next exchange of each tensor that is known, by name.");
  module.def(
      "give_up_rounds",
      [](const std::vector<std::string>& names, const std::string& reason) {
        const std::shared_ptr<Worker> worker = CurrentWorker();
        if (worker != nullptr) worker->GiveUpRounds(names, reason);
      },
      py::arg("names"), py::arg("reason"), ReleaseLock(),
      "Gives up the next round of these tensors: others that wait for this worker get `reason`.");
  module.def(
      "leave",
      [](const std::vector<std::string>& names, uint64_t trainings, const std::string& reason) {
        const std::shared_ptr<Worker> worker = CurrentWorker();
        if (worker != nullptr) worker->Leave(names, trainings, reason);
      },
      py::arg("names"), py::arg("trainings"), py::arg("reason"), ReleaseLock(),
      "Gives up these tensors' rounds of a training, the last of so many: see Exchanges::Leave.");
  module.def(
      "tell_left",
      [] {
        const std::shared_ptr<Worker> worker = CurrentWorker();
        if (worker != nullptr) worker->TellLeft();
      },
      ReleaseLock(), "The others get the reason of `leave` now: not with the next exchange.");
  module.def(
      "skip_to_rounds",
      [](const std::map<std::string, uint64_t>& rounds) {
        const std::shared_ptr<Worker> worker = CurrentWorker();
        if (worker != nullptr) worker->SkipToRounds(rounds);
      },
      py::arg("rounds"), ReleaseLock(), "Tensors' next exchanges have at least these rounds.");
  module.def(
      "begin_join",
      [] {
        const std::shared_ptr<Worker> worker = CurrentWorker();
        ThrowIfError(worker != nullptr ? worker->BeginJoin() : NotRunning());
      },
      ReleaseLock(), "This worker has no more data: see Worker::BeginJoin.");
  module.def(
      "wait_for_join",
      [](double seconds) {
        std::optional<int32_t> last;
        const std::shared_ptr<Worker> worker = CurrentWorker();
        ThrowIfError(worker != nullptr ? worker->WaitForJoin(seconds, &last) : NotRunning());
        return last;
      },
      py::arg("seconds"), ReleaseLock(),
      "The last worker to join, once all have; None after so many seconds.");
  module.def(
      "begin_stores",
      [](const std::vector<std::string>& names) {
        const std::shared_ptr<Worker> worker = CurrentWorker();
        if (worker != nullptr) worker->BeginStores(names);
      },
      py::arg("names"), ReleaseLock(),
      "The next exchange of each of these begins its asynchronous store anew.");
  module.def(
      "is_requested",
      [](const std::string& name) {
        const std::shared_ptr<Worker> worker = CurrentWorker();
        return worker != nullptr && worker->IsRequested(name);
      },
      py::arg("name"), ReleaseLock(), "Whether a server asks for the tensor's next exchange.");
  module.def("residuals", &ResidualsDict,
             "Error feedback of this worker's tensors: {name: (codec, float32 array)}.");
  module.def("restore_residuals", &RestoreResiduals, py::arg("residuals"),
             "Lets tensors go on, with their next exchange, with what `residuals` returned.");
  module.def("declare", &DeclareAll, py::arg("tensors"),
             "Announces tensors: a list of tf_byteps.declaration.Declaration.");
  module.def(
      "full_codec_name",
      [](const std::string& codec) {
        CodecChoice choice;
        ThrowIfError(ParseChoice(codec, &choice));
        return choice.name();
      },
      py::arg("codec"), "A codec's name with all options.");
  module.def("exchange", &Exchange, py::arg("array"), py::kw_only(), py::arg("name"),
             py::arg("kind") = "sum", py::arg("average") = false, py::arg("root_rank") = 0,
             py::arg("priority") = py::none(), py::arg("dtype") = py::none(),
             py::arg("output") = py::none(), py::arg("backup_workers") = 0, py::arg("codec") = "",
             py::arg("staleness") = kUnboundedStaleness, py::arg("splits") = std::vector<int64_t>(),
             py::arg("grace_ms") = kNoGrace, py::arg("contributes") = true,
             "Hands a NumPy array to the engine; returns a Handle. The result goes to `output` if "
             "given: an array like the input; not for gather and alltoall.");
  py::class_<Handle, std::shared_ptr<Handle>>(module, "Handle", "An exchange in flight.")
      .def("wait", &Handle::Wait, py::arg("timeout") = 600.0,
           "The result as an array of the input's dtype.")
      .def("done", &Handle::done)
      .def("received_rows", &Handle::ReceivedRows,
           "Once wait has returned: the rows of each worker in a gather or alltoall, by rank.");
}

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

using FloatArray = py::array_t<float, py::array::c_style>;

void AddTo(FloatArray sums, const FloatArray& values) {
  if (sums.size() != values.size())
    throw py::value_error("the arrays have " + std::to_string(sums.size()) + " and " +
                          std::to_string(values.size()) + " elements");
  float* const to = sums.mutable_data();
  const float* const from = values.data();
  const auto count = static_cast<size_t>(sums.size());
  py::gil_scoped_release unlocked;
  ActiveSumKernels().add(DType::kFloat32, to, from, count);
}

}  // namespace

PYBIND11_MODULE(_engine, module) {
  module.doc() = "The tf_byteps engine, without TensorFlow.";
  module.attr("protocol_version") = int{kProtocolVersion};
  DefineErrors(module);
  DefineOptions(module);
  DefineJob(module);
  DefineProcesses(module);
  DefineWorker(module);
  DefineGoodEnd(module);
  DefineTimeline(module);
  module.def("set_log_level", &SetLogLevelByName, py::arg("level"));
  module.def("set_log_format", &SetLogFormat, py::arg("process"),
             "Lines become JSON objects with these texts and whole numbers in each; None: text.");
  module.def("sum_kernels", [] {
    std::vector<std::string> names;
    for (const SumKernels* kernels : AvailableSumKernels()) names.push_back(kernels->name);
    return names;
  });
  module.def("force_sum_kernels", &ForceSumKernels, py::arg("name"));
  module.def("add_to", &AddTo, py::arg("sums").noconvert(), py::arg("values").noconvert(),
             "Adds float32 arrays of one size as a server does; `sums` changes.");
  module.def(
      "place", &PlaceShapes, py::arg("shapes"), py::arg("worker_hosts"), py::arg("server_hosts"),
      py::arg("part_bytes") = 0,
      "Where a job's coordinator would put float32 tensors of these shapes that are declared "
      "together: for each a list of (elements, server) of its parts.");
}

}  // namespace byteps

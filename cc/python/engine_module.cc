// tf_byteps._engine: the engine for Python, without TensorFlow.
//
// Used by tf_byteps/runtime, server.py and scheduler.py for the processes' life, and by tests
// and benchmarks to exchange NumPy arrays. Calls that may wait release the interpreter's lock.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/logging.h"
#include "cc/base/tensor_description.h"
#include "cc/coordinator/state/placement.h"
#include "cc/python/bindings.h"
#include "cc/sum/sum.h"
#include "cc/wire/handshake.h"

namespace py = pybind11;

namespace byteps {
namespace {

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
  DefineExchanges(module);
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

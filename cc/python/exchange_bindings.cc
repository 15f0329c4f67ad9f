// Exchanges of NumPy arrays, and the tensors that are announced before.
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/tensor_description.h"
#include "cc/codec/choice.h"
#include "cc/engine/engine.h"
#include "cc/python/bindings.h"
#include "cc/python/without_lock.h"

namespace py = pybind11;

namespace byteps {
namespace {

// Of an array that is not of this machine's. The engine runs on little-endian ones only.
constexpr char kOtherByteOrder = '>';

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
                           int32_t staleness = kUnboundedStaleness, int32_t grace_ms = kNoGrace,
                           int32_t home = 0) {
  TensorDescription tensor;
  tensor.name = name;
  tensor.shape = std::move(shape);
  tensor.average = average;
  tensor.root_rank = root_rank;
  tensor.backup_workers = backup_workers;
  tensor.codec = codec;
  tensor.staleness = staleness;
  tensor.grace_ms = grace_ms;
  tensor.home = home;
  if (!ParseDType(dtype, &tensor.dtype)) {
    throw EngineError{InvalidArgument(
        "tensor \"" + name + "\": dtype " + dtype +
        " cannot be exchanged; use float32, float64, float16, bfloat16, int8, uint8, "
        "int32 or int64")};
  }
  if (!ParseExchangeKind(kind, &tensor.kind)) {
    throw EngineError{InvalidArgument(
        "tensor \"" + name + "\": unknown operation \"" + kind +
        "\"; use sum, min, max, broadcast, gather, store, alltoall, product or table")};
  }
  return tensor;
}

// By NumPy's name. The usual types need no call of Python, which takes longer than the engine does.
std::string NameOf(const py::dtype& dtype) {
  const char kind = dtype.kind();
  const ssize_t size = dtype.itemsize();
  if (kind == 'f' && size == 4) return DTypeName(DType::kFloat32);
  if (kind == 'f' && size == 8) return DTypeName(DType::kFloat64);
  if (kind == 'i' && size == 4) return DTypeName(DType::kInt32);
  if (kind == 'i' && size == 8) return DTypeName(DType::kInt64);
  return py::str(dtype.attr("name"));
}

void CheckByteOrder(const py::dtype& dtype, const std::string& name) {
  if (dtype.byteorder() != kOtherByteOrder) return;
  throw EngineError{InvalidArgument("tensor \"" + name + "\": the array is " +
                                    std::string(py::str(dtype)) +
                                    ", which is not this machine's byte order; exchange "
                                    "array.astype(array.dtype.newbyteorder(\"=\"))")};
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

// Has the engine say how many rows there are before they arrive in the handle's own memory.
void ReceiveRows(Handle* handle, ExchangeRequest* request) {
  request->gather_rows = handle->shape[0];
  request->tensor.shape[0] = -1;
  const uint64_t row_bytes = request->tensor.ByteCount();
  request->allocate_output = [handle, row_bytes](const std::vector<int64_t>& rows) -> void* {
    int64_t total = 0;
    for (const int64_t count : rows) total += count;
    handle->received_rows = rows;
    handle->shape[0] = total;
    handle->output.resize(std::max<uint64_t>(1, total * row_bytes));
    return handle->output.data();
  };
}

std::shared_ptr<Handle> ExchangeArray(const py::array& given, const std::string& name,
                                      const std::string& kind, bool average, int32_t root_rank,
                                      std::optional<int32_t> priority,
                                      const std::optional<std::string>& dtype,
                                      const std::optional<py::array>& output,
                                      int32_t backup_workers, const std::string& codec,
                                      int32_t staleness, std::vector<int64_t> splits,
                                      int32_t grace_ms, bool contributes, int32_t home) {
  std::shared_ptr<Handle> handle = NewHandle();
  handle->input = py::array::ensure(given, py::array::c_style);
  const py::array& array = handle->input;
  handle->dtype = array.dtype();
  CheckByteOrder(handle->dtype, name);
  handle->shape.assign(array.shape(), array.shape() + array.ndim());

  ExchangeRequest request;
  request.tensor =
      Describe(name, dtype.has_value() ? *dtype : NameOf(handle->dtype), handle->shape, kind,
               average, root_rank, backup_workers, codec, staleness, grace_ms, home);
  if (DTypeSize(request.tensor.dtype) != static_cast<size_t>(array.itemsize())) {
    throw EngineError{InvalidArgument(
        "tensor \"" + name + "\": dtype " + *dtype + " takes " +
        std::to_string(DTypeSize(request.tensor.dtype)) + " bytes an element, but the array is " +
        std::string(py::str(handle->dtype)) + ", which takes " + std::to_string(array.itemsize()))};
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
    ReceiveRows(raw, &request);
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

}  // namespace

void DefineExchanges(py::module_& module) {
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
  module.def("exchange", &ExchangeArray, py::arg("array"), py::kw_only(), py::arg("name"),
             py::arg("kind") = "sum", py::arg("average") = false, py::arg("root_rank") = 0,
             py::arg("priority") = py::none(), py::arg("dtype") = py::none(),
             py::arg("output") = py::none(), py::arg("backup_workers") = 0, py::arg("codec") = "",
             py::arg("staleness") = kUnboundedStaleness, py::arg("splits") = std::vector<int64_t>(),
             py::arg("grace_ms") = kNoGrace, py::arg("contributes") = true, py::arg("home") = 0,
             "Hands a NumPy array to the engine; returns a Handle. The result goes to `output` if "
             "given: an array like the input; not for gather, alltoall and table.");
  py::class_<Handle, std::shared_ptr<Handle>>(module, "Handle", "An exchange in flight.")
      .def("wait", &Handle::Wait, py::arg("timeout") = 600.0,
           "The result as an array of the input's dtype.")
      .def("done", &Handle::done)
      .def("received_rows", &Handle::ReceivedRows,
           "Once wait has returned: the rows of each worker in a gather or alltoall, by rank.");
}

}  // namespace byteps

// Exchanges that a compiled program starts with a copy of a tensor, and that a later one ends: what
// handlers on CPUs and GPUs have in common.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/tf/started_exchanges.h"
#include "cc/xla/compiled_call.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/tensor.h"

namespace byteps {

inline tensorflow::DataType TensorType(DType dtype) {
  for (int i = tensorflow::DataType_MIN; i < tensorflow::DataType_MAX; ++i) {
    const auto type = static_cast<tensorflow::DataType>(i);
    DType known;
    if (ToDType(type, &known).ok() && known == dtype) return type;
  }
  return tensorflow::DT_INVALID;
}

inline xla::ffi::Error ToCallError(const absl::Status& status) {
  if (status.ok()) return xla::ffi::Error::Success();
  // Both are numbered as everywhere at Google.
  return xla::ffi::Error(static_cast<XLA_FFI_Error_Code>(status.code()),
                         std::string(status.message()));
}

// Where a hand-over keeps its tensors, and how they get there.
struct DetachedStart {
  tensorflow::Allocator* memory = nullptr;
  std::function<Status(void* to, const void* from, size_t bytes)> copy;
  // Whether the result may come to where the copy is.
  bool in_place = false;
  // What a stream will wait for. Null: it waits for none.
  std::function<StreamExchangePointer(const std::string& name)> on_stream;
  std::function<void(ExchangeRequest, const StreamExchangePointer&)> enqueue;
};

// XLA's memory is its own again when this returns, or in the order of the stream.
inline absl::Status StartDetachedTensors(const CallAttributes& attributes,
                                         const xla::ffi::RemainingArgs& operands,
                                         const DetachedStart& way) {
  std::vector<ExchangeRequest> described;
  TF_RETURN_IF_ERROR(ToAbslStatus(DescribeStart(attributes, operands, &described)));
  for (const ExchangeRequest& each : described) {
    TensorDescription tensor = each.tensor;
    Tensor copy(way.memory, TensorType(tensor.dtype), TensorShape(std::exchange(tensor.shape, {})));
    if (!copy.IsInitialized()) {
      return absl::ResourceExhaustedError("no memory for tensor \"" + tensor.name + "\" of " +
                                          std::to_string(each.tensor.ByteCount()) + " bytes");
    }
    if (copy.TotalBytes() > 0) {
      TF_RETURN_IF_ERROR(ToAbslStatus(way.copy(copy.data(), each.input, copy.TotalBytes())));
    }
    const StreamExchangePointer on_stream = way.on_stream ? way.on_stream(tensor.name) : nullptr;
    auto started = std::make_shared<StartedExchange>(copy, way.memory, way.in_place, on_stream);
    ExchangeRequest request;
    TF_RETURN_IF_ERROR(MakeRequest({tensor, each.priority}, started, &request));
    TF_RETURN_IF_ERROR(AllStarted().Start(
        tensor.name, started, [enqueue = way.enqueue, request = std::move(request), on_stream] {
          enqueue(request, on_stream);
        }));
  }
  return absl::OkStatus();
}

// What was started under a name, which a call has in digits.
inline absl::Status TakeStarted(std::string_view digits, xla::ffi::DataType type,
                                std::shared_ptr<StartedExchange>* started) {
  DType dtype;
  if (!ToDType(type, &dtype)) return absl::InternalError("compiled with another type");
  return AllStarted().Take(FromDigits(digits), TensorType(dtype), started);
}

inline tensorflow::PartialTensorShape ShapeOfResult(const xla::ffi::AnyBuffer& result) {
  return tensorflow::PartialTensorShape(
      std::vector<int64_t>(result.dimensions().begin(), result.dimensions().end()));
}

}  // namespace byteps

// What the attributes of an operation say about its exchange.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "cc/base/status.h"
#include "cc/base/tensor_description.h"
#include "cc/tf/named_exchange.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/types.h"

namespace byteps {

inline absl::Status ToAbslStatus(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk: return absl::OkStatus();
    case StatusCode::kInvalidArgument: return absl::InvalidArgumentError(status.message());
    case StatusCode::kFailedPrecondition: return absl::FailedPreconditionError(status.message());
    case StatusCode::kUnavailable: return absl::UnavailableError(status.message());
    case StatusCode::kDeadlineExceeded: return absl::DeadlineExceededError(status.message());
    case StatusCode::kCancelled: return absl::CancelledError(status.message());
    case StatusCode::kResourceExhausted: return absl::ResourceExhaustedError(status.message());
    case StatusCode::kInternal: return absl::InternalError(status.message());
  }
  return absl::InternalError("unknown engine status: " + status.ToString());
}

inline absl::Status ToDType(tensorflow::DataType type, DType* dtype) {
  if (ParseDType(tensorflow::DataTypeString(type), dtype)) return absl::OkStatus();
  switch (type) {  // TensorFlow's own spellings
    case tensorflow::DT_FLOAT: *dtype = DType::kFloat32; return absl::OkStatus();
    case tensorflow::DT_DOUBLE: *dtype = DType::kFloat64; return absl::OkStatus();
    case tensorflow::DT_HALF: *dtype = DType::kFloat16; return absl::OkStatus();
    default:
      return absl::InvalidArgumentError("tf_byteps cannot exchange tensors of type " +
                                        tensorflow::DataTypeString(type));
  }
}

// Checks what each exchange has.
inline absl::Status SetNameAndType(const std::string& name, tensorflow::DataType type,
                                   int64_t priority, NamedExchange* exchange) {
  if (name.empty() || name.size() > kMaxNameBytes) {
    return absl::InvalidArgumentError("tensor_name must have 1 to " +
                                      std::to_string(kMaxNameBytes) + " bytes, got " +
                                      std::to_string(name.size()));
  }
  if (priority < std::numeric_limits<int32_t>::min() ||
      priority > std::numeric_limits<int32_t>::max()) {
    return absl::InvalidArgumentError("priority of '" + name + "' must fit 32 bits, got " +
                                      std::to_string(priority));
  }
  exchange->tensor.name = name;
  exchange->priority = static_cast<int32_t>(priority);
  TF_RETURN_IF_ERROR(ToDType(type, &exchange->tensor.dtype));
  if (!exchange->tensor.average || IsFloating(exchange->tensor.dtype)) return absl::OkStatus();
  return absl::InvalidArgumentError("'" + name + "': an average of " +
                                    DTypeName(exchange->tensor.dtype) +
                                    " is not exact; use op 'sum' and divide, or cast");
}

// The attributes `op` and, if there are such, `backup_workers` and `codec`.
inline absl::Status ReadReduction(tensorflow::OpKernelConstruction* context,
                                  TensorDescription* tensor) {
  std::string op;
  TF_RETURN_IF_ERROR(context->GetAttr("op", &op));
  tensor->average = op == "average";
  if (op == "min") tensor->kind = ExchangeKind::kMin;
  if (op == "max") tensor->kind = ExchangeKind::kMax;
  if (op == "product") tensor->kind = ExchangeKind::kProduct;
  if (context->HasAttr("codec")) TF_RETURN_IF_ERROR(context->GetAttr("codec", &tensor->codec));
  if (!context->HasAttr("backup_workers")) return absl::OkStatus();
  return context->GetAttr("backup_workers", &tensor->backup_workers);
}

inline absl::Status ReadBroadcast(tensorflow::OpKernelConstruction* context,
                                  TensorDescription* tensor) {
  tensor->kind = ExchangeKind::kBroadcast;
  return context->GetAttr("root_rank", &tensor->root_rank);
}

inline absl::Status ReadGather(tensorflow::OpKernelConstruction* context,
                               TensorDescription* tensor) {
  tensor->kind = ExchangeKind::kGather;
  return context->GetAttr("codec", &tensor->codec);
}

inline absl::Status ReadAllToAll(tensorflow::OpKernelConstruction*, TensorDescription* tensor) {
  tensor->kind = ExchangeKind::kAllToAll;
  return absl::OkStatus();
}

inline absl::Status ReadRowSum(tensorflow::OpKernelConstruction* context,
                               TensorDescription* tensor) {
  tensor->kind = ExchangeKind::kRowSum;
  return context->GetAttr("average", &tensor->average);
}

inline absl::Status ReadStore(tensorflow::OpKernelConstruction* context,
                              TensorDescription* tensor) {
  tensor->kind = ExchangeKind::kStore;
  return context->GetAttr("staleness", &tensor->staleness);
}

// One of those above.
using ReadKind = absl::Status (*)(tensorflow::OpKernelConstruction*, TensorDescription*);

// An operation of one exchange.
inline absl::Status ReadExchange(tensorflow::OpKernelConstruction* context, ReadKind read_kind,
                                 NamedExchange* exchange) {
  std::string name;
  tensorflow::DataType type;
  int64_t priority = kBackwardOrder;
  TF_RETURN_IF_ERROR(context->GetAttr("tensor_name", &name));
  TF_RETURN_IF_ERROR(context->GetAttr("T", &type));
  TF_RETURN_IF_ERROR(context->GetAttr("priority", &priority));
  TF_RETURN_IF_ERROR(read_kind(context, &exchange->tensor));
  return SetNameAndType(name, type, priority, exchange);
}

// An operation of several.
inline absl::Status ReadExchanges(tensorflow::OpKernelConstruction* context,
                                  std::vector<NamedExchange>* exchanges) {
  std::vector<std::string> names;
  std::vector<tensorflow::DataType> types;
  std::vector<int64_t> priorities;
  std::vector<std::string> codecs;
  TF_RETURN_IF_ERROR(context->GetAttr("tensor_names", &names));
  TF_RETURN_IF_ERROR(context->GetAttr("T", &types));
  TF_RETURN_IF_ERROR(context->GetAttr("priorities", &priorities));
  TF_RETURN_IF_ERROR(context->GetAttr("codecs", &codecs));
  if (names.size() != types.size() || priorities.size() != types.size()) {
    return absl::InvalidArgumentError(
        "each of " + std::to_string(types.size()) + " tensors needs a name and a priority, got " +
        std::to_string(names.size()) + " and " + std::to_string(priorities.size()));
  }
  if (codecs.empty()) codecs.resize(types.size());
  if (codecs.size() != types.size()) {
    return absl::InvalidArgumentError("each of " + std::to_string(types.size()) +
                                      " tensors needs a codec, or none does, got " +
                                      std::to_string(codecs.size()));
  }
  exchanges->resize(types.size());
  for (size_t i = 0; i < types.size(); ++i) {
    NamedExchange& exchange = (*exchanges)[i];
    TF_RETURN_IF_ERROR(ReadReduction(context, &exchange.tensor));
    exchange.tensor.codec = codecs[i];
    TF_RETURN_IF_ERROR(SetNameAndType(names[i], types[i], priorities[i], &exchange));
  }
  return absl::OkStatus();
}

}  // namespace byteps

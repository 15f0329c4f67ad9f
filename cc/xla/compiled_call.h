// The custom calls that an exchange becomes in a program that XLA has compiled, and what those who
// write the program (tf/xla_kernels.cc, tf_byteps/jax/custom_calls.py) tell their handlers.
//
//   run()                     -> run             a number for this run of the computation
//   start(run, x..., after...) -> x'..., handle   hands each x to the engine and returns; x' is x's
//                                                   memory
//                          or   x', handle, all   of one gather, whose result has another shape
//   start(run, x..., passed..., after...)        the same: what passes through is needed later
//                       -> x'..., handle, passed...
//   barrier(handles...)       -> handle          nothing; what needs it comes after all of these
//   done(run, x'..., handle)  -> result...       ends with the exchanges; each result is in its x's
//     or (run, x', handle, all)                    memory, or in that of `all`
//   start_detached(x..., passed..., after...)    starts exchanges that outlast the program: copies
//                       -> handle, passed...       of each x; `passed` as of a start
//   wait(run, after...)       -> result..., handle  ends with exchanges that an earlier program has
//                                                  started; waits when `after` has been computed
//   place()                   -> number          of this worker, when it runs
//
// A start has several tensors where they are ready at about one time: XLA makes one CUDA graph of
// what it computes between two calls, and a call costs the host several microseconds.
//
// x' says that the memory is in use between start and done. A handle is never read or written: it
// gives the calls an order, because XLA knows none but that of data. XLA's own numbers of runs are
// all equal on the CPU.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/tensor_description.h"
#include "cc/worker/state/exchange_request.h"
#include "cc/xla/call_text.h"
#include "xla/ffi/api/ffi.h"

namespace byteps {

inline constexpr char kRunCall[] = "byteps_run";
inline constexpr char kStartCall[] = "byteps_start";
inline constexpr char kBarrierCall[] = "byteps_barrier";
inline constexpr char kDoneCall[] = "byteps_done";
inline constexpr char kStartDetachedCall[] = "byteps_start_detached";
inline constexpr char kWaitCall[] = "byteps_wait";
inline constexpr char kRankInfoCall[] = "byteps_rank_info";

// What a start and a done know of their exchanges. Of one call they differ in name, codec and
// priority.
struct CallAttributes {
  std::string_view names;       // as xla/call_text.h writes them
  std::string_view codecs;      // too
  std::string_view priorities;  // "-1.2"
  int64_t kind;
  int64_t average;
  int64_t root_rank;
  int64_t backup_workers;
};

inline std::vector<std::string> CallNames(const CallAttributes& attributes) {
  std::vector<std::string> names;
  for (const std::string_view digits : Split(attributes.names)) names.push_back(FromDigits(digits));
  return names;
}

inline xla::ffi::Error ToCallError(const Status& status) {
  const auto error = [&](XLA_FFI_Error_Code code) {
    return xla::ffi::Error(code, status.message());
  };
  switch (status.code()) {
    case StatusCode::kOk: return xla::ffi::Error::Success();
    case StatusCode::kInvalidArgument: return error(XLA_FFI_Error_Code_INVALID_ARGUMENT);
    case StatusCode::kFailedPrecondition: return error(XLA_FFI_Error_Code_FAILED_PRECONDITION);
    case StatusCode::kUnavailable: return error(XLA_FFI_Error_Code_UNAVAILABLE);
    case StatusCode::kDeadlineExceeded: return error(XLA_FFI_Error_Code_DEADLINE_EXCEEDED);
    case StatusCode::kCancelled: return error(XLA_FFI_Error_Code_CANCELLED);
    case StatusCode::kResourceExhausted: return error(XLA_FFI_Error_Code_RESOURCE_EXHAUSTED);
    case StatusCode::kInternal: return error(XLA_FFI_Error_Code_INTERNAL);
  }
  return error(XLA_FFI_Error_Code_UNKNOWN);
}

inline bool ToDType(xla::ffi::DataType type, DType* dtype) {
  switch (type) {
    case xla::ffi::DataType::F32: *dtype = DType::kFloat32; return true;
    case xla::ffi::DataType::F64: *dtype = DType::kFloat64; return true;
    case xla::ffi::DataType::F16: *dtype = DType::kFloat16; return true;
    case xla::ffi::DataType::BF16: *dtype = DType::kBFloat16; return true;
    case xla::ffi::DataType::S8: *dtype = DType::kInt8; return true;
    case xla::ffi::DataType::U8: *dtype = DType::kUInt8; return true;
    case xla::ffi::DataType::S32: *dtype = DType::kInt32; return true;
    case xla::ffi::DataType::S64: *dtype = DType::kInt64; return true;
    default: return false;
  }
}

inline xla::ffi::AnyBuffer BufferOf(xla::ffi::AnyBuffer argument) { return argument; }
inline xla::ffi::AnyBuffer BufferOf(xla::ffi::Result<xla::ffi::AnyBuffer> result) {
  return *result;
}

// What tells the memory of a buffer from that of others, from start to end. XLA may give an empty
// one another address in each call.
inline const void* PlaceOf(xla::ffi::AnyBuffer buffer) {
  return buffer.size_bytes() == 0 ? nullptr : buffer.untyped_data();
}

// Fills in all of the requests that a start call says; where the results go, and what happens at
// the end, is left to the caller. `values` are the call's first results, or its first arguments.
template <typename Values>
Status DescribeStart(const CallAttributes& attributes, const Values& values,
                     std::vector<ExchangeRequest>* requests) {
  const std::vector<std::string> names = CallNames(attributes);
  const std::vector<std::string_view> codecs = Split(attributes.codecs);
  const std::vector<std::string_view> priorities = Split(attributes.priorities);
  requests->resize(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    auto found = values.template get<xla::ffi::AnyBuffer>(i);
    if (!found.has_value() || codecs.size() != names.size() || priorities.size() != names.size())
      return Internal("tensor \"" + names[i] + "\" was compiled by another version");
    const xla::ffi::AnyBuffer value = BufferOf(*found);
    ExchangeRequest& request = (*requests)[i];
    TensorDescription& tensor = request.tensor;
    tensor.name = names[i];
    if (!ToDType(value.element_type(), &tensor.dtype))
      return Internal("tensor \"" + tensor.name + "\" was compiled with another type");
    tensor.shape.assign(value.dimensions().begin(), value.dimensions().end());
    tensor.kind = static_cast<ExchangeKind>(attributes.kind);
    tensor.average = attributes.average != 0;
    tensor.root_rank = static_cast<int32_t>(attributes.root_rank);
    tensor.backup_workers = static_cast<int32_t>(attributes.backup_workers);
    tensor.codec = FromDigits(codecs[i]);
    std::from_chars(priorities[i].data(), priorities[i].data() + priorities[i].size(),
                    request.priority);
    request.input = value.untyped_data();
    if (tensor.kind == ExchangeKind::kGather) {
      request.gather_rows = tensor.shape[0];
      tensor.shape[0] = -1;
    }
  }
  return OkStatus();
}

}  // namespace byteps

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(
    ::byteps::CallAttributes, StructMember<std::string_view>("names"),
    StructMember<std::string_view>("codecs"), StructMember<std::string_view>("priorities"),
    StructMember<int64_t>("kind"), StructMember<int64_t>("average"),
    StructMember<int64_t>("root_rank"), StructMember<int64_t>("backup_workers"));

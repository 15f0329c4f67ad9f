// The custom calls that an exchange becomes in a program that XLA has compiled, and what the
// compiler (xla_kernels.cc) tells their handlers (host_handlers.cc, gpu_handlers.cc).
//
//   run()                  -> run             a number for this run of the computation
//   start(x, run, after...) -> x', handle      hands x to the engine and returns; x' is x's memory
//                          or  x', handle, all   of a gather, whose result has another shape
//   gate(handles...)       -> handle          nothing; what needs it comes after all these starts
//   done(x', run, handle)  -> result          ends with the exchange; the result is in x's memory
//     or (x', run, handle, all)                 or in that of `all`
//   place()                -> number          of this worker, when it runs
//
// x' says that the memory is in use between start and done. A handle is never read or written: it
// gives the calls an order, because XLA knows none but that of data. XLA's own numbers of runs are
// all equal on the CPU.
#ifndef TF_BYTEPS_CC_TF_COMPILED_CALL_H_
#define TF_BYTEPS_CC_TF_COMPILED_CALL_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "cc/base/status.h"
#include "cc/tf/attributes.h"
#include "cc/worker/exchange_request.h"
#include "xla/ffi/api/ffi.h"

namespace xla::ffi {
const XLA_FFI_Api* GetXlaFfiApi();  // of TensorFlow's library
}

namespace byteps {

inline constexpr char kRunCall[] = "byteps_run";
inline constexpr char kStartCall[] = "byteps_start";
inline constexpr char kGateCall[] = "byteps_gate";
inline constexpr char kDoneCall[] = "byteps_done";
inline constexpr char kPlaceCall[] = "byteps_place";

// What a start and a done know of their exchange.
struct CallAttributes {
  std::string_view name;   // in hexadecimal digits: names have quotes and the like
  std::string_view codec;  // too
  int64_t kind;
  int64_t average;
  int64_t root_rank;
  int64_t backup_workers;
  int64_t priority;
};

inline std::string ToDigits(const std::string& text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string digits;
  for (const unsigned char c : text) {
    digits += kDigits[c >> 4];
    digits += kDigits[c & 15];
  }
  return digits;
}

inline std::string FromDigits(std::string_view digits) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string text;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    text += static_cast<char>(digit(digits[i]) * 16 + digit(digits[i + 1]));
  return text;
}

// The attributes as XLA takes them.
inline std::string ToCallConfig(const NamedExchange& exchange) {
  const auto number = [](const char* key, int64_t value) {
    return std::string(", ") + key + " = " + std::to_string(value) + " : i64";
  };
  return "{name = \"" + ToDigits(exchange.tensor.name) + "\", codec = \"" +
         ToDigits(exchange.tensor.codec) + "\"" +
         number("kind", static_cast<int64_t>(exchange.tensor.kind)) +
         number("average", exchange.tensor.average) +
         number("root_rank", exchange.tensor.root_rank) +
         number("backup_workers", exchange.tensor.backup_workers) +
         number("priority", exchange.priority) + "}";
}

inline std::string CallName(const CallAttributes& attributes) {
  return FromDigits(attributes.name);
}

inline xla::ffi::Error ToCallError(const Status& status) {
  if (status.ok()) return xla::ffi::Error::Success();
  // Both are numbered as everywhere at Google.
  const auto code = static_cast<XLA_FFI_Error_Code>(ToAbslStatus(status).code());
  return xla::ffi::Error(code, status.message());
}

inline bool ToDType(xla::ffi::DataType type, DType* dtype) {
  switch (type) {
    case xla::ffi::DataType::F32:
      *dtype = DType::kFloat32;
      return true;
    case xla::ffi::DataType::F64:
      *dtype = DType::kFloat64;
      return true;
    case xla::ffi::DataType::F16:
      *dtype = DType::kFloat16;
      return true;
    case xla::ffi::DataType::BF16:
      *dtype = DType::kBFloat16;
      return true;
    case xla::ffi::DataType::S8:
      *dtype = DType::kInt8;
      return true;
    case xla::ffi::DataType::U8:
      *dtype = DType::kUInt8;
      return true;
    case xla::ffi::DataType::S32:
      *dtype = DType::kInt32;
      return true;
    case xla::ffi::DataType::S64:
      *dtype = DType::kInt64;
      return true;
    default:
      return false;
  }
}

// Fills in all of a request that a start call says; where the result goes, and what happens at the
// end, is left to the caller.
inline Status DescribeStart(const CallAttributes& attributes, const xla::ffi::AnyBuffer& value,
                            ExchangeRequest* request) {
  TensorDescription& tensor = request->tensor;
  tensor.name = CallName(attributes);
  if (!ToDType(value.element_type(), &tensor.dtype))
    return Internal("tensor \"" + tensor.name + "\" was compiled with another type");
  tensor.shape.assign(value.dimensions().begin(), value.dimensions().end());
  tensor.kind = static_cast<ExchangeKind>(attributes.kind);
  tensor.average = attributes.average != 0;
  tensor.root_rank = static_cast<int32_t>(attributes.root_rank);
  tensor.backup_workers = static_cast<int32_t>(attributes.backup_workers);
  tensor.codec = FromDigits(attributes.codec);
  request->priority = static_cast<int32_t>(attributes.priority);
  request->input = value.untyped_data();
  if (tensor.kind == ExchangeKind::kGather) {
    request->gather_rows = tensor.shape[0];
    tensor.shape[0] = -1;
  }
  return OkStatus();
}

}  // namespace byteps

XLA_FFI_REGISTER_STRUCT_ATTR_DECODING(
    ::byteps::CallAttributes, StructMember<std::string_view>("name"),
    StructMember<std::string_view>("codec"), StructMember<int64_t>("kind"),
    StructMember<int64_t>("average"), StructMember<int64_t>("root_rank"),
    StructMember<int64_t>("backup_workers"), StructMember<int64_t>("priority"));

#endif  // TF_BYTEPS_CC_TF_COMPILED_CALL_H_

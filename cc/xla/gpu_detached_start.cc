// What JAX's compiled programs call on a GPU to leave exchanges to a later program. Threads: as in
// gpu_handlers.cc. TensorFlow's have calls of their own (tf/gpu_detached_start.cc), whose exchanges
// operations without XLA can end, too.
//
// A start copies the tensor on the program's stream, to memory of ours that is the exchange's own:
// JAX may free its arrays at any time. The result comes to the same memory. A wait makes its
// program's stream wait for the result, as a done does, and copies it on that stream.
#include <string>
#include <utility>
#include <vector>

#include "cc/gpu/cuda_driver.h"
#include "cc/staging/gpu_exchanger.h"
#include "cc/xla/compiled_call.h"
#include "cc/xla/detached_exchanges.h"
#include "cc/xla/handlers.h"
#include "cc/xla/request_watch.h"
#include "cc/xla/stream_copy.h"

namespace byteps {
namespace {

namespace ffi = xla::ffi;

using Stream = ffi::PlatformStream<CudaStreamHandle>;

// Copies a request's input to memory of ours, and lets the result come there.
Status Detach(CudaStreamHandle stream, ExchangeRequest* request, DetachedExchange* detached) {
  // What a training that has failed has left: the engine is at work until it has ended.
  const DetachedExchange left = AllDetached().Take(request->tensor.name);
  if (left.exchange != nullptr) AllStreamExchanges().EndGivenUp({left.exchange});
  const size_t bytes = request->tensor.ByteCount();
  BYTEPS_RETURN_IF_ERROR(AllDetached().MemoryOf(stream, bytes, &detached->memory));
  BYTEPS_RETURN_IF_ERROR(CopyOnGpu(stream, detached->memory.get(), request->input, bytes));
  detached->exchange = std::make_shared<StreamExchange>(request->tensor.name, stream,
                                                        /*uses_programs_memory=*/false);
  request->input = request->output = detached->memory.get();
  request->done = [detached = *detached](const Status& status) {
    AllStreamExchanges().End(detached.exchange, status);
  };
  return OkStatus();
}

ffi::Error StartDetached(CudaStreamHandle stream, CallAttributes attributes,
                         ffi::RemainingArgs operands, ffi::RemainingRets) {
  std::vector<ExchangeRequest> requests;
  GpuExchanger* exchanger = nullptr;
  Status status = DescribeStart(attributes, operands, &requests);
  if (status.ok()) status = GpuExchanger::OfStream(stream, &exchanger);
  std::vector<DetachedExchange> detached(requests.size());
  for (size_t i = 0; i < requests.size() && status.ok(); ++i)
    status = Detach(stream, &requests[i], &detached[i]);
  if (!status.ok()) return ToCallError(status);
  std::vector<DeviceRequest> together(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    ShowToWatch(&requests[i]);
    together[i].request = std::move(requests[i]);
    AllStreamExchanges().Begin(detached[i].exchange, &together[i]);
    AllDetached().Add(std::move(detached[i]));
  }
  exchanger->Enqueue(stream, std::move(together));
  return ffi::Error::Success();
}

// Copies the result to `to`: when the stream has waited for it, or when the host has.
Status CopyResult(CudaStreamHandle stream, const DetachedExchange& detached,
                  const ffi::AnyBuffer& to) {
  const StreamExchangePointer& exchange = detached.exchange;
  if (exchange->stream != stream) AllStreamExchanges().EndGivenUp({exchange});
  DeviceEvent end;
  BYTEPS_RETURN_IF_ERROR(AllStreamExchanges().WaitUntilSubmitted(exchange, &end));
  if (end != nullptr) AllDetached().NoteTaken(exchange);
  if (end != nullptr && end->IsOfHost()) {
    if (to.size_bytes() == 0) return end->MakeStreamWait(stream);
    return end->CopyResult(stream, to.untyped_data());
  }
  if (end != nullptr) BYTEPS_RETURN_IF_ERROR(end->MakeStreamWait(stream));
  return CopyOnGpu(stream, to.untyped_data(), detached.memory.get(), to.size_bytes());
}

// Claims the exchange of this name and copies its result to `to`.
Status EndExchange(CudaStreamHandle stream, const std::string& name, const ffi::AnyBuffer& to) {
  const DetachedExchange detached = AllDetached().Take(name);
  if (detached.exchange == nullptr) {
    return Internal("tensor \"" + name +
                    "\": no program has started the exchange that this one ends");
  }
  const Status status = CopyResult(stream, detached, to);
  if (!status.ok()) AllStreamExchanges().Release({detached.exchange});
  return status;
}

// What comes after a failure is not taken: who starts it anew gives it up first (Detach).
ffi::Error Wait(CudaStreamHandle stream, CallAttributes attributes, ffi::RemainingArgs,
                ffi::RemainingRets results) {
  const std::vector<std::string> names = CallNames(attributes);
  Status status;
  for (size_t i = 0; i < names.size() && status.ok(); ++i)
    status = EndExchange(stream, names[i], **results.get<ffi::AnyBuffer>(i));
  return ToCallError(status);
}

}  // namespace
}  // namespace byteps

XLA_FFI_DEFINE_HANDLER_SYMBOL(byteps_start_detached_on_cuda, byteps::StartDetached,
                              byteps::ffi::Ffi::Bind()
                                  .Ctx<byteps::Stream>()
                                  .Attrs<byteps::CallAttributes>()
                                  .RemainingArgs()
                                  .RemainingRets());
XLA_FFI_DEFINE_HANDLER_SYMBOL(byteps_wait_on_cuda, byteps::Wait,
                              byteps::ffi::Ffi::Bind()
                                  .Ctx<byteps::Stream>()
                                  .Attrs<byteps::CallAttributes>()
                                  .RemainingArgs()
                                  .RemainingRets());

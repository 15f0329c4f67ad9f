// What compiled programs call on the CPU to leave exchanges to a later program. Threads: as in
// xla/host_handlers.cc.
#include <memory>
#include <utility>

#include "cc/base/copy.h"
#include "cc/engine/engine.h"
#include "cc/tf/detached_start.h"
#include "cc/tf/ffi_api.h"
#include "cc/xla/host_threads.h"
#include "tensorflow/core/framework/allocator.h"

namespace byteps {
namespace {

namespace ffi = xla::ffi;

ffi::Error StartDetached(CallAttributes attributes, ffi::RemainingArgs operands,
                         ffi::RemainingRets) {
  DetachedStart way;
  way.memory = tensorflow::cpu_allocator();
  way.copy = [](void* to, const void* from, size_t bytes) {
    CopyPastCache(to, from, bytes);
    return OkStatus();
  };
  way.enqueue = [](ExchangeRequest request, const StreamExchangePointer&) {
    Enqueue(std::move(request));
  };
  return ToCallError(StartDetachedTensors(attributes, operands, way));
}

// Nothing is written to XLA's memory once the future is complete, and before only after success.
ffi::Future Wait(std::string_view name, ffi::RemainingArgs, ffi::Result<ffi::AnyBuffer> result) {
  ffi::CountDownPromise promise(1);
  ffi::Future future(promise);
  std::shared_ptr<StartedExchange> started;
  const absl::Status status = TakeStarted(name, result->element_type(), &started);
  if (!status.ok()) {
    promise.CountDown(ToCallError(status));
    return future;
  }
  started->WhenFinished([promise, started, shape = ShapeOfResult(*result),
                         to = result->untyped_data(),
                         bytes = result->size_bytes()](const absl::Status& ended) {
    // Older compilers would make the copy of a captured promise constant.
    ComputeLater([promise = ffi::CountDownPromise(promise), started, shape, to, bytes,
                  outcome = ended]() mutable {
      if (outcome.ok()) outcome = CheckResultShape(started->output(), shape);
      if (outcome.ok()) CopyPastCache(to, started->output().data(), bytes);
      promise.CountDown(ToCallError(outcome));
    });
  });
  return future;
}

XLA_FFI_DEFINE_HANDLER(kStartDetached, StartDetached,
                       ffi::Ffi::Bind().Attrs<CallAttributes>().RemainingArgs().RemainingRets());
XLA_FFI_DEFINE_HANDLER(
    kWait, Wait,
    ffi::Ffi::Bind().Attr<std::string_view>("name").RemainingArgs().Ret<ffi::AnyBuffer>());

XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kStartDetachedCall, "Host", kStartDetached);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kWaitCall, "Host", kWait);

}  // namespace
}  // namespace byteps

// What compiled programs call on a GPU to leave exchanges to a later program. Threads: as in
// xla/gpu_handlers.cc.
//
// A hand-over copies the tensor on the program's stream, to memory of TensorFlow's that is the
// exchange's own. The exchange begins when the stream has come so far, and gives its result to the
// same memory. A take makes its program's stream wait for the result, as a done does
// (xla/gpu_handlers.cc); or it blocks its thread until the exchange has ended, where a done would.
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cc/gpu/cuda_driver.h"
#include "cc/staging/gpu_exchanger.h"
#include "cc/tf/detached_start.h"
#include "cc/tf/ffi_api.h"
#include "cc/tf/gpu_allocators.h"
#include "cc/xla/stream_copy.h"
#include "cc/xla/stream_exchanges.h"

namespace byteps {
namespace {

namespace ffi = xla::ffi;

using Stream = ffi::PlatformStream<CudaStreamHandle>;

// The exchanges that one call starts. The exchanger gets them at once, but for those that come
// later, which had to wait for others of their names. Thread-safe.
class Together {
 public:
  Together(GpuExchanger* exchanger, CudaStreamHandle stream)
      : exchanger_(exchanger), stream_(stream) {}

  void Add(DeviceRequest request) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      requests_.push_back(std::move(request));
      if (!has_gone_) return;
    }
    Enqueue();
  }

  void Enqueue() {
    std::vector<DeviceRequest> requests;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      has_gone_ = true;
      requests.swap(requests_);
    }
    exchanger_->Enqueue(stream_, std::move(requests));
  }

 private:
  GpuExchanger* const exchanger_;
  const CudaStreamHandle stream_;
  std::mutex mutex_;  // guards all below
  std::vector<DeviceRequest> requests_;
  bool has_gone_ = false;
};

ffi::Error StartDetached(CudaStreamHandle stream, CallAttributes attributes,
                         ffi::RemainingArgs operands, ffi::RemainingRets) {
  GpuExchanger* exchanger = nullptr;
  const Status found = GpuExchanger::OfStream(stream, &exchanger);
  if (!found.ok()) return ToCallError(found);
  const auto together = std::make_shared<Together>(exchanger, stream);
  DetachedStart way;
  way.memory = AllGpuAllocators().Of(stream);
  if (way.memory == nullptr)
    return ToCallError(Internal("a compiled step runs on a GPU that is not known"));
  way.copy = [stream](void* to, const void* from, size_t bytes) {
    return CopyOnGpu(stream, to, from, bytes);
  };
  way.in_place = true;
  way.on_stream = [stream](const std::string& name) {
    return std::make_shared<StreamExchange>(name, stream, /*uses_programs_memory=*/false);
  };
  way.enqueue = [together](ExchangeRequest request, const StreamExchangePointer& exchange) {
    request.done = [exchange, done = std::move(request.done)](const Status& status) {
      AllStreamExchanges().End(exchange, status);
      done(status);
    };
    DeviceRequest added;
    added.request = std::move(request);
    AllStreamExchanges().Begin(exchange, &added);
    together->Add(std::move(added));
  };
  const absl::Status handed_over = StartDetachedTensors(attributes, operands, way);
  // Also after a failure: others may wait for those that have been started.
  together->Enqueue();
  return ToCallError(handed_over);
}

// Blocks until the exchange has ended.
absl::Status WaitFor(StartedExchange& started) {
  const auto ended = std::make_shared<std::promise<absl::Status>>();
  started.WhenFinished([ended](const absl::Status& status) { ended->set_value(status); });
  return ended->get_future().get();
}

// Waits for the result, and copies it to `to`: now, or in the order of the stream.
absl::Status CopyResult(CudaStreamHandle stream, StartedExchange& started,
                        const ffi::AnyBuffer& to) {
  const StreamExchangePointer& exchange = started.on_stream();
  DeviceEvent end;
  if (exchange != nullptr && exchange->stream == stream) {
    TF_RETURN_IF_ERROR(ToAbslStatus(AllStreamExchanges().WaitUntilSubmitted(exchange, &end)));
  } else {
    TF_RETURN_IF_ERROR(WaitFor(started));
  }
  TF_RETURN_IF_ERROR(CheckResultShape(started.output(), ShapeOfResult(to)));
  if (to.size_bytes() == 0) return absl::OkStatus();
  if (end != nullptr && end->IsOfHost())
    return ToAbslStatus(end->CopyResult(stream, to.untyped_data()));
  if (end != nullptr) TF_RETURN_IF_ERROR(ToAbslStatus(end->MakeStreamWait(stream)));
  return ToAbslStatus(
      CopyOnGpu(stream, to.untyped_data(), started.output().data(), to.size_bytes()));
}

ffi::Error Wait(CudaStreamHandle stream, std::string_view name, ffi::RemainingArgs,
                ffi::Result<ffi::AnyBuffer> result) {
  std::shared_ptr<StartedExchange> started;
  absl::Status status = TakeStarted(name, result->element_type(), &started);
  if (!status.ok()) return ToCallError(status);
  status = CopyResult(stream, *started, *result);
  // It is used again behind this copy, though the exchange may not have ended for the host.
  if (status.ok()) started->DropMemory();
  if (!status.ok()) started->Release();
  return ToCallError(status);
}

XLA_FFI_DEFINE_HANDLER(
    kStartDetached, StartDetached,
    ffi::Ffi::Bind().Ctx<Stream>().Attrs<CallAttributes>().RemainingArgs().RemainingRets());
XLA_FFI_DEFINE_HANDLER(kWait, Wait,
                       ffi::Ffi::Bind()
                           .Ctx<Stream>()
                           .Attr<std::string_view>("name")
                           .RemainingArgs()
                           .Ret<ffi::AnyBuffer>());

XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kStartDetachedCall, "CUDA", kStartDetached);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kWaitCall, "CUDA", kWait);

}  // namespace
}  // namespace byteps

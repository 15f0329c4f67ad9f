// What compiled programs call on a GPU to leave exchanges to a later program. Threads: as in
// gpu_handlers.cc.
//
// A hand-over copies the tensor on the program's stream, to memory of TensorFlow's that is the
// exchange's own. The exchange begins when the stream has come so far, and gives its result to the
// same memory. A take blocks its thread until the exchange has ended: what the program computes
// before that is on the stream already. No stream waits for servers here.
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cc/gpu/cuda_driver.h"
#include "cc/staging/gpu_exchanger.h"
#include "cc/tf/gpu_allocators.h"
#include "cc/tf/hand_over.h"

namespace byteps {
namespace {

namespace ffi = xla::ffi;

using Stream = ffi::PlatformStream<CudaStreamHandle>;

// In the stream's order.
Status CopyOnGpu(CudaStreamHandle stream, void* to, const void* from, size_t bytes) {
  const CudaDriver* driver = nullptr;
  BYTEPS_RETURN_IF_ERROR(CudaDriver::Get(&driver));
  return driver->Check(
      driver->cuMemcpyDtoDAsync(reinterpret_cast<CudaAddress>(to),
                                reinterpret_cast<CudaAddress>(from), bytes, stream),
      "cuMemcpyDtoDAsync");
}

ffi::Error HandOver(CudaStreamHandle stream, CallAttributes attributes, ffi::RemainingArgs operands,
                    ffi::RemainingRets) {
  GpuExchanger* exchanger = nullptr;
  const Status found = GpuExchanger::OfStream(stream, &exchanger);
  if (!found.ok()) return ToCallError(found);
  std::vector<DeviceRequest> together;
  HandOverWay way;
  way.memory = AllGpuAllocators().Of(stream);
  if (way.memory == nullptr)
    return ToCallError(Internal("a compiled step runs on a GPU that is not known"));
  way.copy = [stream](void* to, const void* from, size_t bytes) {
    return CopyOnGpu(stream, to, from, bytes);
  };
  way.in_place = true;
  way.enqueue = [&together](ExchangeRequest request) {
    together.emplace_back().request = std::move(request);
  };
  const absl::Status handed_over = HandOverTensors(attributes, operands, way);
  // Also after a failure: others may wait for those that have been started.
  exchanger->Enqueue(stream, std::move(together));
  return ToCallError(handed_over);
}

// Blocks until the exchange has ended.
absl::Status WaitFor(StartedExchange& started) {
  struct End {
    std::mutex mutex;
    std::condition_variable changed;
    bool has_come = false;
    absl::Status status;
  };
  const auto end = std::make_shared<End>();
  started.WhenFinished([end](const absl::Status& status) {
    std::lock_guard<std::mutex> lock(end->mutex);
    end->status = status;
    end->has_come = true;
    end->changed.notify_all();
  });
  std::unique_lock<std::mutex> lock(end->mutex);
  end->changed.wait(lock, [&] { return end->has_come; });
  return end->status;
}

ffi::Error Take(CudaStreamHandle stream, std::string_view name, ffi::RemainingArgs,
                ffi::Result<ffi::AnyBuffer> result) {
  std::shared_ptr<StartedExchange> started;
  absl::Status status = TakeStarted(name, result->element_type(), &started);
  if (status.ok()) status = WaitFor(*started);
  if (status.ok()) status = CheckResultShape(started->output(), ShapeOfResult(*result));
  if (status.ok() && result->size_bytes() > 0) {
    // The memory is given back now, and used again behind this copy.
    status = ToAbslStatus(
        CopyOnGpu(stream, result->untyped_data(), started->output().data(), result->size_bytes()));
  }
  return ToCallError(status);
}

XLA_FFI_DEFINE_HANDLER(
    kHandOver, HandOver,
    ffi::Ffi::Bind().Ctx<Stream>().Attrs<CallAttributes>().RemainingArgs().RemainingRets());
XLA_FFI_DEFINE_HANDLER(kTake, Take,
                       ffi::Ffi::Bind()
                           .Ctx<Stream>()
                           .Attr<std::string_view>("name")
                           .RemainingArgs()
                           .Ret<ffi::AnyBuffer>());

XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kHandOverCall, "CUDA", kHandOver);
XLA_FFI_REGISTER_HANDLER(ffi::GetXlaFfiApi(), kTakeCall, "CUDA", kTake);

}  // namespace
}  // namespace byteps

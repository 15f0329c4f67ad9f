#include "cc/gpu/cuda_driver.h"

#include "cc/base/dynamic_library.h"

namespace byteps {
namespace {

constexpr CudaResult kOutOfMemory = 2;

}  // namespace

Status CudaDriver::Load() {
  DynamicLibrary library;
  // Never closed, so its functions stay when this object is gone.
  BYTEPS_RETURN_IF_ERROR(library.Open({"libcuda.so.1"}));
  // Where a function exists in two versions, the second: in CUDA's headers its name is a macro.
  BYTEPS_RETURN_IF_ERROR(library.Find("cuInit", &cuInit));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuGetErrorName", &cuGetErrorName));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuGetErrorString", &cuGetErrorString));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuDeviceGetCount", &cuDeviceGetCount));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuDeviceGet", &cuDeviceGet));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuDeviceGetName", &cuDeviceGetName));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuDevicePrimaryCtxRetain", &cuDevicePrimaryCtxRetain));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuDevicePrimaryCtxRelease_v2", &cuDevicePrimaryCtxRelease));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuCtxPushCurrent_v2", &cuCtxPushCurrent));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuCtxPopCurrent_v2", &cuCtxPopCurrent));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuCtxGetDevice", &cuCtxGetDevice));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuCtxGetStreamPriorityRange", &cuCtxGetStreamPriorityRange));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuStreamCreateWithPriority", &cuStreamCreateWithPriority));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuStreamDestroy_v2", &cuStreamDestroy));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuStreamGetCtx", &cuStreamGetCtx));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuStreamWaitEvent", &cuStreamWaitEvent));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuStreamSynchronize", &cuStreamSynchronize));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuEventCreate", &cuEventCreate));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuEventDestroy_v2", &cuEventDestroy));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuEventRecord", &cuEventRecord));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuEventSynchronize", &cuEventSynchronize));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuModuleLoadData", &cuModuleLoadData));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuModuleUnload", &cuModuleUnload));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuModuleGetFunction", &cuModuleGetFunction));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuLaunchKernel", &cuLaunchKernel));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuMemAlloc_v2", &cuMemAlloc));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuMemFree_v2", &cuMemFree));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuMemHostRegister_v2", &cuMemHostRegister));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuMemHostUnregister", &cuMemHostUnregister));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuMemHostGetDevicePointer_v2", &cuMemHostGetDevicePointer));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuMemcpyHtoDAsync_v2", &cuMemcpyHtoDAsync));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuMemcpyDtoHAsync_v2", &cuMemcpyDtoHAsync));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuMemcpyDtoDAsync_v2", &cuMemcpyDtoDAsync));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuMemsetD8Async", &cuMemsetD8Async));
  BYTEPS_RETURN_IF_ERROR(library.Find("cuMemsetD32Async", &cuMemsetD32Async));
  // Since CUDA 11.7.
  if (!library.Find("cuStreamWaitValue32_v2", &cuStreamWaitValue32).ok())
    cuStreamWaitValue32 = nullptr;
  return Check(cuInit(0), "cuInit");
}

Status CudaDriver::Get(const CudaDriver** driver) {
  struct Loaded {
    CudaDriver driver;
    Status status;
    Loaded() {
      status = driver.Load();
      if (!status.ok()) status = FailedPrecondition("no GPU: " + status.message());
    }
  };
  // Never destroyed: threads may still call the driver while the process ends.
  static const Loaded* const loaded = new Loaded;
  *driver = &loaded->driver;
  return loaded->status;
}

Status CudaDriver::Check(CudaResult result, const char* call) const {
  if (result == 0) return OkStatus();
  const char* name = nullptr;
  const char* text = nullptr;
  std::string message = std::string(call) + ": ";
  if (cuGetErrorName(result, &name) == 0 && cuGetErrorString(result, &text) == 0) {
    message += std::string(name) + " (" + text + ")";
  } else {
    message += "CUDA error " + std::to_string(result);
  }
  return result == kOutOfMemory ? ResourceExhausted(message) : Internal(message);
}

}  // namespace byteps

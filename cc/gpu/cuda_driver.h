// CudaDriver: the functions of CUDA's driver library that the engine calls.
//
// The library comes with the kernel driver and is opened at run time: the engine is built without
// CUDA, works without a GPU, and does not care which CUDA TensorFlow brings along, because the
// driver keeps old functions. The declarations here are our own; names and order of arguments are
// those of the CUDA driver API's reference.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "cc/base/status.h"

namespace byteps {

using CudaResult = int;  // 0: success
using CudaDevice = int;
using CudaAddress = unsigned long long;  // in a GPU's memory
using CudaContextHandle = struct CudaContextObject*;
using CudaStreamHandle = struct CudaStreamObject*;  // also what NCCL calls a cudaStream_t
using CudaEventHandle = struct CudaEventObject*;
using CudaModuleHandle = struct CudaModuleObject*;
using CudaFunctionHandle = struct CudaFunctionObject*;

struct CudaDriver {
  // The driver, opened and initialized by the first call; valid until the process ends.
  // FAILED_PRECONDITION, "no GPU: ...", if there is none.
  static Status Get(const CudaDriver** driver);

  // OK, or `call` with CUDA's own name and text of the error.
  Status Check(CudaResult result, const char* call) const;

  CudaResult (*cuInit)(unsigned int flags);
  CudaResult (*cuGetErrorName)(CudaResult error, const char** name);
  CudaResult (*cuGetErrorString)(CudaResult error, const char** text);

  CudaResult (*cuDeviceGetCount)(int* count);
  CudaResult (*cuDeviceGet)(CudaDevice* device, int ordinal);
  CudaResult (*cuDeviceGetName)(char* name, int bytes, CudaDevice device);
  CudaResult (*cuDevicePrimaryCtxRetain)(CudaContextHandle* context, CudaDevice device);
  CudaResult (*cuDevicePrimaryCtxRelease)(CudaDevice device);
  CudaResult (*cuCtxPushCurrent)(CudaContextHandle context);
  CudaResult (*cuCtxPopCurrent)(CudaContextHandle* context);
  CudaResult (*cuCtxGetDevice)(CudaDevice* device);
  CudaResult (*cuCtxGetStreamPriorityRange)(int* least, int* greatest);

  CudaResult (*cuStreamCreateWithPriority)(CudaStreamHandle* stream, unsigned int flags,
                                           int priority);
  CudaResult (*cuStreamDestroy)(CudaStreamHandle stream);
  CudaResult (*cuStreamGetCtx)(CudaStreamHandle stream, CudaContextHandle* context);
  CudaResult (*cuStreamWaitEvent)(CudaStreamHandle stream, CudaEventHandle event,
                                  unsigned int flags);
  // Null where the driver has none: then no stream can wait for the host.
  CudaResult (*cuStreamWaitValue32)(CudaStreamHandle stream, CudaAddress word, uint32_t value,
                                    unsigned int flags) = nullptr;
  CudaResult (*cuStreamSynchronize)(CudaStreamHandle stream);

  CudaResult (*cuEventCreate)(CudaEventHandle* event, unsigned int flags);
  CudaResult (*cuEventDestroy)(CudaEventHandle event);
  CudaResult (*cuEventRecord)(CudaEventHandle event, CudaStreamHandle stream);
  CudaResult (*cuEventSynchronize)(CudaEventHandle event);

  CudaResult (*cuModuleLoadData)(CudaModuleHandle* module, const void* image);
  CudaResult (*cuModuleUnload)(CudaModuleHandle module);
  CudaResult (*cuModuleGetFunction)(CudaFunctionHandle* function, CudaModuleHandle module,
                                    const char* name);
  CudaResult (*cuLaunchKernel)(CudaFunctionHandle function, unsigned int grid_x,
                               unsigned int grid_y, unsigned int grid_z, unsigned int block_x,
                               unsigned int block_y, unsigned int block_z,
                               unsigned int shared_bytes, CudaStreamHandle stream, void** arguments,
                               void** extra);

  CudaResult (*cuMemAlloc)(CudaAddress* address, size_t bytes);
  CudaResult (*cuMemFree)(CudaAddress address);
  CudaResult (*cuMemHostRegister)(void* address, size_t bytes, unsigned int flags);
  CudaResult (*cuMemHostUnregister)(void* address);
  // The address by which the GPU knows pinned memory.
  CudaResult (*cuMemHostGetDevicePointer)(CudaAddress* address, void* pinned, unsigned int flags);
  CudaResult (*cuMemcpyHtoDAsync)(CudaAddress to, const void* from, size_t bytes,
                                  CudaStreamHandle stream);
  CudaResult (*cuMemcpyDtoHAsync)(void* to, CudaAddress from, size_t bytes,
                                  CudaStreamHandle stream);
  CudaResult (*cuMemcpyDtoDAsync)(CudaAddress to, CudaAddress from, size_t bytes,
                                  CudaStreamHandle stream);
  CudaResult (*cuMemsetD8Async)(CudaAddress to, unsigned char value, size_t bytes,
                                CudaStreamHandle stream);
  CudaResult (*cuMemsetD32Async)(CudaAddress to, unsigned int value, size_t count,
                                 CudaStreamHandle stream);

 private:
  Status Load();
};

}  // namespace byteps

// A copy within a GPU's memory, in the order of a stream of the framework's.
#pragma once

#include <cstddef>

#include "cc/base/status.h"
#include "cc/gpu/cuda_driver.h"

namespace byteps {

// Puts the copy on the stream. Does not block.
inline Status CopyOnGpu(CudaStreamHandle stream, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return OkStatus();
  const CudaDriver* driver = nullptr;
  BYTEPS_RETURN_IF_ERROR(CudaDriver::Get(&driver));
  return driver->Check(
      driver->cuMemcpyDtoDAsync(reinterpret_cast<CudaAddress>(to),
                                reinterpret_cast<CudaAddress>(from), bytes, stream),
      "cuMemcpyDtoDAsync");
}

}  // namespace byteps

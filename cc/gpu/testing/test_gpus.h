// For tests that need GPUs: they are skipped, with the reason, where there are none.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "cc/gpu/device.h"

namespace byteps {

// "" if this machine has `count` GPUs.
inline std::string MissingGpus(int count) {
  const CudaDriver* driver = nullptr;
  const Status status = CudaDriver::Get(&driver);
  if (!status.ok()) return status.message();
  if (GpuDevice::Count() >= count) return "";
  return "needs " + std::to_string(count) + " GPUs, there are " +
         std::to_string(GpuDevice::Count());
}

inline std::shared_ptr<GpuDevice> OpenGpu(int ordinal) {
  std::shared_ptr<GpuDevice> device;
  const Status status = GpuDevice::Open(ordinal, &device);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return device;
}

inline std::unique_ptr<DeviceBuffer> NewDeviceBuffer(std::shared_ptr<GpuDevice> device,
                                                     size_t bytes) {
  std::unique_ptr<DeviceBuffer> buffer;
  const Status status = DeviceBuffer::Create(std::move(device), bytes, &buffer);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return buffer;
}

inline std::unique_ptr<CudaStream> NewStream(std::shared_ptr<GpuDevice> device) {
  std::unique_ptr<CudaStream> stream;
  const Status status = CudaStream::Create(std::move(device), &stream);
  EXPECT_TRUE(status.ok()) << status.ToString();
  return stream;
}

// Blocking copies, by the simplest way there is.
inline void Upload(const std::vector<uint8_t>& from, const DeviceBuffer& to, CudaStream* stream) {
  const CudaDriver& driver = stream->device()->driver();
  const ScopedContext scope(*stream->device());
  ASSERT_EQ(driver.cuMemcpyHtoDAsync(to.address(), from.data(), from.size(), stream->handle()), 0);
  ASSERT_TRUE(stream->Synchronize().ok());
}

inline std::vector<uint8_t> Download(const DeviceBuffer& from, CudaStream* stream) {
  std::vector<uint8_t> to(from.bytes());
  const CudaDriver& driver = stream->device()->driver();
  const ScopedContext scope(*stream->device());
  EXPECT_EQ(driver.cuMemcpyDtoHAsync(to.data(), from.address(), to.size(), stream->handle()), 0);
  EXPECT_TRUE(stream->Synchronize().ok());
  return to;
}

}  // namespace byteps

#define BYTEPS_NEED_GPUS(count)                     \
  do {                                              \
    const std::string missing = MissingGpus(count); \
    if (!missing.empty()) GTEST_SKIP() << missing;  \
  } while (false)

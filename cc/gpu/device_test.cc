#include "cc/gpu/device.h"

#include <gtest/gtest.h>

#include "cc/base/dynamic_library.h"
#include "cc/gpu/nccl.h"
#include "cc/gpu/testing/test_gpus.h"

namespace byteps {
namespace {

TEST(DynamicLibrary, SaysWhatIsMissing) {
  DynamicLibrary library;
  Status status = library.Open({"libno-such-thing.so.1", "/no/such/path.so"});
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("libno-such-thing.so.1"), std::string::npos) << status.message();
  EXPECT_NE(status.message().find("/no/such/path.so"), std::string::npos) << status.message();

  ASSERT_TRUE(library.Open({"libno-such-thing.so.1", "libc.so.6"}).ok());
  EXPECT_EQ(library.name(), "libc.so.6");
  int (*function)(int) = nullptr;
  EXPECT_TRUE(library.Find("abs", &function).ok());
  EXPECT_EQ(function(-3), 3);
  status = library.Find("no_such_function", &function);
  EXPECT_EQ(status.message(), "libc.so.6 has no no_such_function: it is too old");
}

TEST(GpuDevice, WithoutADriverAnErrorSaysSo) {
  const CudaDriver* driver = nullptr;
  const Status status = CudaDriver::Get(&driver);
  if (status.ok()) GTEST_SKIP() << "there is a driver here";
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message().rfind("no GPU: ", 0), 0u) << status.message();
  EXPECT_EQ(GpuDevice::Count(), 0);
  std::shared_ptr<GpuDevice> device;
  EXPECT_EQ(GpuDevice::Open(0, &device).message(), status.message());
  EXPECT_EQ(device, nullptr);
}

TEST(Nccl, WithoutTheLibraryAnErrorSaysSo) {
  const Nccl* nccl = nullptr;
  const Status status = Nccl::Get(&nccl);
  if (status.ok()) GTEST_SKIP() << "there is NCCL " << nccl->version << " here";
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message().rfind("no NCCL: libnccl.so.2", 0), 0u) << status.message();
  NcclUniqueId id;
  EXPECT_EQ(NcclCommunicator::NewGroup(&id).message(), status.message());
}

TEST(GpuDevice, OpensAllGpus) {
  BYTEPS_NEED_GPUS(1);
  for (int ordinal = 0; ordinal < GpuDevice::Count(); ++ordinal) {
    const auto device = OpenGpu(ordinal);
    ASSERT_NE(device, nullptr);
    EXPECT_EQ(device->ordinal(), ordinal);
    EXPECT_FALSE(device->name().empty());
    std::printf("GPU %d: %s\n", ordinal, device->name().c_str());
  }
}

TEST(GpuDevice, ErrorsHaveCudasOwnWords) {
  BYTEPS_NEED_GPUS(1);
  std::shared_ptr<GpuDevice> device;
  EXPECT_EQ(GpuDevice::Open(GpuDevice::Count(), &device).message(),
            "cuDeviceGet: CUDA_ERROR_INVALID_DEVICE (invalid device ordinal)");
  std::unique_ptr<DeviceBuffer> buffer;
  const Status status = DeviceBuffer::Create(OpenGpu(0), size_t{1} << 50, &buffer);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(status.message(), "cuMemAlloc: CUDA_ERROR_OUT_OF_MEMORY (out of memory)");
}

TEST(ScopedContext, GivesBackTheThreadsOwnContext) {
  BYTEPS_NEED_GPUS(2);
  const auto first = OpenGpu(0);
  const auto second = OpenGpu(1);
  CudaContextHandle context = nullptr;
  const ScopedContext outer(*first);
  {
    const ScopedContext inner(*second);
    ASSERT_EQ(first->driver().cuCtxPopCurrent(&context), 0);
    EXPECT_EQ(context, second->context());
    ASSERT_EQ(first->driver().cuCtxPushCurrent(context), 0);
  }
  ASSERT_EQ(first->driver().cuCtxPopCurrent(&context), 0);
  EXPECT_EQ(context, first->context());
  ASSERT_EQ(first->driver().cuCtxPushCurrent(context), 0);
}

TEST(CudaStream, KnowsItsContext) {
  BYTEPS_NEED_GPUS(1);
  const auto device = OpenGpu(0);
  const auto stream = NewStream(device);
  CudaContextHandle context = nullptr;
  ASSERT_EQ(device->driver().cuStreamGetCtx(stream->handle(), &context), 0);
  EXPECT_EQ(context, device->context());
}

}  // namespace
}  // namespace byteps

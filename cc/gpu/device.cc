#include "cc/gpu/device.h"

#include <sys/mman.h>

#include "cc/base/logging.h"
#include "cc/base/round_up.h"

namespace byteps {
namespace {

constexpr size_t kDeviceAlignment = 256;
constexpr unsigned int kStreamNonBlocking = 1;  // independent of the default stream
constexpr unsigned int kEventBlockingSync = 1;  // a waiting thread sleeps
constexpr unsigned int kEventDisableTiming = 2;
constexpr unsigned int kRegisterPortable = 1;  // pinned for all contexts

// For what cannot be answered with a Status: destructors.
void LogIfError(const Status& status) {
  if (!status.ok()) LogWarning(status.message());
}

}  // namespace

int GpuDevice::Count() {
  const CudaDriver* driver = nullptr;
  int count = 0;
  if (!CudaDriver::Get(&driver).ok() || driver->cuDeviceGetCount(&count) != 0) return 0;
  return count;
}

Status GpuDevice::Open(int ordinal, std::shared_ptr<GpuDevice>* device) {
  const CudaDriver* driver = nullptr;
  BYTEPS_RETURN_IF_ERROR(CudaDriver::Get(&driver));
  std::shared_ptr<GpuDevice> opened(new GpuDevice);
  BYTEPS_RETURN_IF_ERROR(
      driver->Check(driver->cuDeviceGet(&opened->device_, ordinal), "cuDeviceGet"));
  char name[256] = "";
  BYTEPS_RETURN_IF_ERROR(driver->Check(driver->cuDeviceGetName(name, sizeof(name), opened->device_),
                                       "cuDeviceGetName"));
  BYTEPS_RETURN_IF_ERROR(
      driver->Check(driver->cuDevicePrimaryCtxRetain(&opened->context_, opened->device_),
                    "cuDevicePrimaryCtxRetain"));
  opened->driver_ = driver;
  opened->ordinal_ = ordinal;
  opened->name_ = name;
  *device = std::move(opened);
  return OkStatus();
}

Status GpuDevice::OfStream(CudaStreamHandle stream, std::shared_ptr<GpuDevice>* device) {
  const CudaDriver* driver = nullptr;
  BYTEPS_RETURN_IF_ERROR(CudaDriver::Get(&driver));
  CudaContextHandle context = nullptr;
  BYTEPS_RETURN_IF_ERROR(driver->Check(driver->cuStreamGetCtx(stream, &context), "cuStreamGetCtx"));
  BYTEPS_RETURN_IF_ERROR(driver->Check(driver->cuCtxPushCurrent(context), "cuCtxPushCurrent"));
  int ordinal = 0;  // what CUDA calls a device is its ordinal
  const Status status = driver->Check(driver->cuCtxGetDevice(&ordinal), "cuCtxGetDevice");
  BYTEPS_RETURN_IF_ERROR(driver->Check(driver->cuCtxPopCurrent(&context), "cuCtxPopCurrent"));
  BYTEPS_RETURN_IF_ERROR(status);
  return Open(ordinal, device);
}

GpuDevice::~GpuDevice() {
  if (driver_ == nullptr) return;
  LogIfError(
      driver_->Check(driver_->cuDevicePrimaryCtxRelease(device_), "cuDevicePrimaryCtxRelease"));
}

ScopedContext::ScopedContext(const GpuDevice& device)
    : driver_(device.driver()),
      status_(driver_.Check(driver_.cuCtxPushCurrent(device.context()), "cuCtxPushCurrent")) {}

ScopedContext::~ScopedContext() {
  CudaContextHandle ours = nullptr;
  if (status_.ok()) LogIfError(driver_.Check(driver_.cuCtxPopCurrent(&ours), "cuCtxPopCurrent"));
}

Status CudaStream::Create(std::shared_ptr<GpuDevice> device, std::unique_ptr<CudaStream>* stream) {
  const ScopedContext scope(*device);
  BYTEPS_RETURN_IF_ERROR(scope.status());
  const CudaDriver& driver = device->driver();
  int least = 0;
  int greatest = 0;
  BYTEPS_RETURN_IF_ERROR(driver.Check(driver.cuCtxGetStreamPriorityRange(&least, &greatest),
                                      "cuCtxGetStreamPriorityRange"));
  std::unique_ptr<CudaStream> created(new CudaStream(std::move(device)));
  BYTEPS_RETURN_IF_ERROR(driver.Check(
      driver.cuStreamCreateWithPriority(&created->handle_, kStreamNonBlocking, greatest),
      "cuStreamCreateWithPriority"));
  *stream = std::move(created);
  return OkStatus();
}

CudaStream::~CudaStream() {
  if (handle_ == nullptr) return;
  const ScopedContext scope(*device_);
  LogIfError(
      device_->driver().Check(device_->driver().cuStreamDestroy(handle_), "cuStreamDestroy"));
}

Status CudaStream::WaitFor(CudaEventHandle event) {
  const CudaDriver& driver = device_->driver();
  const ScopedContext scope(*device_);
  BYTEPS_RETURN_IF_ERROR(scope.status());
  return driver.Check(driver.cuStreamWaitEvent(handle_, event, 0), "cuStreamWaitEvent");
}

Status CudaStream::Synchronize() {
  const CudaDriver& driver = device_->driver();
  const ScopedContext scope(*device_);
  BYTEPS_RETURN_IF_ERROR(scope.status());
  return driver.Check(driver.cuStreamSynchronize(handle_), "cuStreamSynchronize");
}

Status CudaEvent::Create(std::shared_ptr<GpuDevice> device, std::unique_ptr<CudaEvent>* event) {
  const ScopedContext scope(*device);
  BYTEPS_RETURN_IF_ERROR(scope.status());
  const CudaDriver& driver = device->driver();
  std::unique_ptr<CudaEvent> created(new CudaEvent(std::move(device)));
  BYTEPS_RETURN_IF_ERROR(driver.Check(
      driver.cuEventCreate(&created->handle_, kEventBlockingSync | kEventDisableTiming),
      "cuEventCreate"));
  *event = std::move(created);
  return OkStatus();
}

CudaEvent::~CudaEvent() {
  if (handle_ == nullptr) return;
  const ScopedContext scope(*device_);
  LogIfError(device_->driver().Check(device_->driver().cuEventDestroy(handle_), "cuEventDestroy"));
}

Status CudaEvent::Record(CudaStreamHandle stream) {
  const CudaDriver& driver = device_->driver();
  const ScopedContext scope(*device_);
  BYTEPS_RETURN_IF_ERROR(scope.status());
  return driver.Check(driver.cuEventRecord(handle_, stream), "cuEventRecord");
}

Status CudaEvent::Wait() {
  const CudaDriver& driver = device_->driver();
  const ScopedContext scope(*device_);
  BYTEPS_RETURN_IF_ERROR(scope.status());
  return driver.Check(driver.cuEventSynchronize(handle_), "cuEventSynchronize");
}

Status StreamEvent::CopyResult(CudaStreamHandle, void*) {
  return Internal("what a stream waits for is no result of the host's");
}

Status CudaEvent::MakeStreamWait(CudaStreamHandle stream) {
  const CudaDriver& driver = device_->driver();
  const ScopedContext scope(*device_);
  BYTEPS_RETURN_IF_ERROR(scope.status());
  return driver.Check(driver.cuStreamWaitEvent(stream, handle_, 0), "cuStreamWaitEvent");
}

Status DeviceBuffer::Create(std::shared_ptr<GpuDevice> device, size_t bytes,
                            std::unique_ptr<DeviceBuffer>* buffer) {
  const ScopedContext scope(*device);
  BYTEPS_RETURN_IF_ERROR(scope.status());
  const CudaDriver& driver = device->driver();
  std::unique_ptr<DeviceBuffer> created(new DeviceBuffer(std::move(device), bytes));
  const size_t padded = RoundUp(bytes, kDeviceAlignment);
  BYTEPS_RETURN_IF_ERROR(driver.Check(driver.cuMemAlloc(&created->address_, padded), "cuMemAlloc"));
  *buffer = std::move(created);
  return OkStatus();
}

DeviceBuffer::~DeviceBuffer() {
  if (address_ == 0) return;
  const ScopedContext scope(*device_);
  LogIfError(device_->driver().Check(device_->driver().cuMemFree(address_), "cuMemFree"));
}

Status AllocatePinned(const GpuDevice& device, size_t bytes, void** address) {
  void* const pages =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) return ResourceExhausted(ErrnoMessage("mmap of pinned memory"));
  madvise(pages, bytes, MADV_HUGEPAGE);
  Status status = PinPages(device, pages, bytes);
  if (!status.ok()) {
    munmap(pages, bytes);
    return status;
  }
  *address = pages;
  return OkStatus();
}

void FreePinned(const GpuDevice& device, void* address, size_t bytes) {
  UnpinPages(device, address);
  munmap(address, bytes);
}

Status PinPages(const GpuDevice& device, void* address, size_t bytes) {
  // A child that writes to such a page would take it away from under the GPU.
  madvise(address, bytes, MADV_DONTFORK);
  const ScopedContext scope(device);
  BYTEPS_RETURN_IF_ERROR(scope.status());
  return device.driver().Check(device.driver().cuMemHostRegister(address, bytes, kRegisterPortable),
                               "cuMemHostRegister");
}

void UnpinPages(const GpuDevice& device, void* address) {
  const ScopedContext scope(device);
  LogIfError(
      device.driver().Check(device.driver().cuMemHostUnregister(address), "cuMemHostUnregister"));
}

}  // namespace byteps

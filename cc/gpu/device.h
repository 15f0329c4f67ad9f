// GpuDevice, and what belongs to one: streams, events, memory.
//
// Everything is created by a static function that returns a Status and frees itself. Thread-safe
// unless it says otherwise; none of it touches the calling thread's current context for longer than
// a call.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "cc/base/status.h"
#include "cc/gpu/cuda_driver.h"

namespace byteps {

// A GPU and its primary context, which TensorFlow and NCCL use as well.
class GpuDevice {
 public:
  // How many GPUs the process sees; 0 without a driver. CUDA_VISIBLE_DEVICES hides some.
  static int Count();
  static Status Open(int ordinal, std::shared_ptr<GpuDevice>* device);
  // The one that a stream belongs to.
  static Status OfStream(CudaStreamHandle stream, std::shared_ptr<GpuDevice>* device);
  ~GpuDevice();

  const CudaDriver& driver() const { return *driver_; }
  CudaContextHandle context() const { return context_; }
  int ordinal() const { return ordinal_; }
  const std::string& name() const { return name_; }  // "NVIDIA H200"

 private:
  GpuDevice() = default;

  const CudaDriver* driver_ = nullptr;
  CudaDevice device_ = 0;
  CudaContextHandle context_ = nullptr;
  int ordinal_ = 0;
  std::string name_;
};

// Makes the device's context the calling thread's own until the end of the scope.
class ScopedContext {
 public:
  explicit ScopedContext(const GpuDevice& device);
  ~ScopedContext();
  ScopedContext(const ScopedContext&) = delete;
  ScopedContext& operator=(const ScopedContext&) = delete;

  const Status& status() const { return status_; }

 private:
  const CudaDriver& driver_;
  Status status_;
};

// A stream of the highest priority: what others wait for goes before their computing.
class CudaStream {
 public:
  static Status Create(std::shared_ptr<GpuDevice> device, std::unique_ptr<CudaStream>* stream);
  ~CudaStream();

  CudaStreamHandle handle() const { return handle_; }
  const std::shared_ptr<GpuDevice>& device() const { return device_; }

  // What is put on this stream from now on starts after `event`.
  Status WaitFor(CudaEventHandle event);
  // Blocks the calling thread until all that is on the stream is done.
  Status Synchronize();

 private:
  explicit CudaStream(std::shared_ptr<GpuDevice> device) : device_(std::move(device)) {}

  const std::shared_ptr<GpuDevice> device_;
  CudaStreamHandle handle_ = nullptr;
};

// What a stream can be made to wait for.
class StreamEvent {
 public:
  virtual ~StreamEvent() = default;
  // What is put on `stream` from now on starts after this. Returns at once. The event may go
  // meanwhile.
  virtual Status MakeStreamWait(CudaStreamHandle stream) = 0;
  // The same of a host's event, whose result the stream copies from the host: it comes to `to`,
  // which is memory of the device, instead of where it was to come to.
  virtual Status CopyResult(CudaStreamHandle stream, void* to);
  // No stream will wait for it: what it is the end of must come to its end by itself.
  virtual void EndByItself() {}
  // Whether a stream that is held up waits for the host, and not for work of the GPU.
  virtual bool IsOfHost() const { return false; }
};

// A point in a stream's work. A thread that waits for it sleeps.
class CudaEvent : public StreamEvent {
 public:
  static Status Create(std::shared_ptr<GpuDevice> device, std::unique_ptr<CudaEvent>* event);
  ~CudaEvent() override;

  CudaEventHandle handle() const { return handle_; }
  // The event is now the end of what is on `stream`, which may be somebody else's.
  Status Record(CudaStreamHandle stream);
  // Blocks the calling thread until the recorded point is reached.
  Status Wait();
  // The event may be recorded again meanwhile.
  Status MakeStreamWait(CudaStreamHandle stream) override;

 private:
  explicit CudaEvent(std::shared_ptr<GpuDevice> device) : device_(std::move(device)) {}

  const std::shared_ptr<GpuDevice> device_;
  CudaEventHandle handle_ = nullptr;
};

// Memory of the GPU. The allocation is a little longer: NCCL reads whole words at the end.
class DeviceBuffer {
 public:
  static Status Create(std::shared_ptr<GpuDevice> device, size_t bytes,
                       std::unique_ptr<DeviceBuffer>* buffer);
  ~DeviceBuffer();

  CudaAddress address() const { return address_; }
  // The same as a pointer, which only GPU code may follow.
  void* pointer() const { return reinterpret_cast<void*>(address_); }
  size_t bytes() const { return bytes_; }

 private:
  DeviceBuffer(std::shared_ptr<GpuDevice> device, size_t bytes)
      : device_(std::move(device)), bytes_(bytes) {}

  const std::shared_ptr<GpuDevice> device_;
  const size_t bytes_;
  CudaAddress address_ = 0;
};

// Host memory that every GPU reads and writes by itself, at the full speed of its link. Expensive
// to get: see PinnedPool. These are ordinary pages that CUDA has pinned, and not pages of CUDA's
// own (cuMemHostAlloc): other processes may read them as they read all of this one's memory, and a
// forked child does not get them.
Status AllocatePinned(const GpuDevice& device, size_t bytes, void** address);
void FreePinned(const GpuDevice& device, void* address, size_t bytes);

// The same of whole pages that the caller has mapped.
Status PinPages(const GpuDevice& device, void* address, size_t bytes);
void UnpinPages(const GpuDevice& device, void* address);

}  // namespace byteps

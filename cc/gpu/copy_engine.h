// CopyEngine: copies between a GPU and pinned host memory, beside whatever the GPU computes.
//
// Each direction has a stream and a sleeping thread of its own. The GPU starts a copy to the host
// when what its tensor's stream held at the time of the call is done; that stream itself never
// waits for the engine.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "cc/base/status.h"
#include "cc/gpu/device.h"
#include "cc/gpu/device_codec.h"
#include "cc/gpu/stream_queue.h"

namespace byteps {

// Thread-safe. An error that a copy returns means that its `done` is never called.
class CopyEngine {
 public:
  using Done = StreamQueue::Done;

  static Status Create(std::shared_ptr<GpuDevice> device, std::unique_ptr<CopyEngine>* engine);
  // Waits for the copies that were begun.
  ~CopyEngine();

  // Copies GPU memory that has been written, or that `producer` is about to write.
  Status CopyToHost(CudaAddress from, void* to, size_t bytes, Done done,
                    const CudaStreamHandle* producer = nullptr);

  // The copies to the host that are called from now on start after `event`, which stays the
  // caller's.
  Status StartAfter(CudaEvent* event) { return to_host_->StartAfter(event); }

  // Copies to GPU memory that nothing on the GPU uses any more: its last user came before a copy to
  // the host that has ended. Where that is not so, `owner` is the stream in whose order the memory
  // became free, and the copy waits for what that stream holds now.
  Status CopyToDevice(const void* from, CudaAddress to, size_t bytes, Done done,
                      const CudaStreamHandle* owner = nullptr);

  // Whether the GPU encodes and decodes parts in this form. The first call that finds that it
  // cannot, although it should, warns.
  bool Supports(const DeviceForm& form);

  // As CopyToHost of parts that are encoded first, if Supports: their bytes one after the
  // other.
  Status EncodeToHost(const std::vector<DevicePart>& parts, void* to, Done done);
  // As CopyToDevice of parts that are then decoded; all of them end together.
  Status DecodeToDevice(const std::vector<ArrivedPart>& parts, Done done);

 private:
  explicit CopyEngine(std::shared_ptr<GpuDevice> device)
      : device_(std::move(device)), driver_(device_->driver()) {}

  const std::shared_ptr<GpuDevice> device_;
  const CudaDriver& driver_;
  std::once_flag codec_made_;
  std::unique_ptr<DeviceCodec> codec_;  // of who has called Supports; null: it cannot be had
  std::unique_ptr<StreamQueue> to_host_;
  std::unique_ptr<StreamQueue> to_device_;
};

}  // namespace byteps

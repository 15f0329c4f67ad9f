// CopyEngine: copies between a GPU and pinned host memory, beside whatever the GPU computes.
//
// Each direction has a stream and a sleeping thread of its own. The GPU starts a copy to the host
// when what its tensor's stream held at the time of the call is done; that stream itself never
// waits for the engine.
#ifndef TF_BYTEPS_CC_GPU_COPY_ENGINE_H_
#define TF_BYTEPS_CC_GPU_COPY_ENGINE_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cc/base/status.h"
#include "cc/gpu/device.h"

namespace byteps {

// Thread-safe.
class CopyEngine {
 public:
  // Called exactly once for each copy, on a thread of the engine; must not block. The memory must
  // be there until then.
  using Done = std::function<void(const Status&)>;

  static Status Create(std::shared_ptr<GpuDevice> device, std::unique_ptr<CopyEngine>* engine);
  // Waits for the copies that were begun.
  ~CopyEngine();

  // Copies GPU memory that `producer` is about to write. An error here means that `done` is never
  // called.
  Status CopyToHost(CudaStreamHandle producer, CudaAddress from, void* to, size_t bytes, Done done);

  // Copies to GPU memory that nothing on the GPU uses any more: its last user came before a copy to
  // the host that has ended. Where that is not so, `owner` is the stream in whose order the memory
  // became free, and the copy waits for what that stream holds now.
  Status CopyToDevice(const void* from, CudaAddress to, size_t bytes, Done done,
                      const CudaStreamHandle* owner = nullptr);

 private:
  // Copies of one direction: they begin and end in the order in which they were given.
  class Lane {
   public:
    static Status Create(std::shared_ptr<GpuDevice> device, const std::string& thread_name,
                         std::unique_ptr<Lane>* lane);
    ~Lane();

    // Calls `start` to put work on the stream, behind what `producer`, if not null, holds now.
    Status Add(const CudaStreamHandle* producer,
               const std::function<CudaResult(CudaStreamHandle)>& start, const char* call,
               Done done);

   private:
    struct Pending {
      std::unique_ptr<CudaEvent> event;
      Done done;
    };

    explicit Lane(std::shared_ptr<GpuDevice> device) : device_(std::move(device)) {}
    Status TakeEvent(std::unique_ptr<CudaEvent>* event);
    void Run();

    const std::shared_ptr<GpuDevice> device_;
    std::unique_ptr<CudaStream> stream_;
    std::thread thread_;
    std::mutex mutex_;  // guards all below, and the order on the stream
    std::condition_variable changed_;
    std::deque<Pending> pending_;
    std::vector<std::unique_ptr<CudaEvent>> free_events_;
    bool stopping_ = false;
  };

  CopyEngine() = default;

  const CudaDriver* driver_ = nullptr;
  std::unique_ptr<Lane> to_host_;
  std::unique_ptr<Lane> to_device_;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_GPU_COPY_ENGINE_H_

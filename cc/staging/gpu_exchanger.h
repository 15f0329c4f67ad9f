// GpuExchanger: exchanges tensors that are in a GPU's memory.
//
// They go by way of the host's group of GPUs (staging/local_group.h). Only rows that are gathered
// from several hosts do not: they go through pinned host memory, copy out -> exchange with the
// servers -> copy in. The stream that computes the tensors never waits for any of it.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/gpu/copy_engine.h"
#include "cc/gpu/device.h"
#include "cc/gpu/pinned_pool.h"
#include "cc/staging/local_group.h"
#include "cc/worker/worker.h"

namespace byteps {

// Thread-safe.
class GpuExchanger {
 public:
  // The worker that a tensor goes to, or null if there is none now.
  using FindWorker = std::function<std::shared_ptr<Worker>()>;

  static Status Create(std::shared_ptr<GpuDevice> device, FindWorker find_worker,
                       std::unique_ptr<GpuExchanger>* exchanger);

  // The one of the stream's GPU that hands tensors to this process's engine. Made by the first call
  // for a GPU, and never destroyed.
  static Status OfStream(CudaStreamHandle stream, GpuExchanger** exchanger);

  // Exchanges tensors whose `input` and `output` (and what `allocate_output` returns) are
  // addresses in the GPU's memory. `stream` is where the inputs are computed, possibly later, and
  // in whose order the outputs' memory became free. Otherwise as Enqueue of engine/engine.h.
  void Enqueue(CudaStreamHandle stream, std::vector<DeviceRequest> together);
  void Enqueue(CudaStreamHandle stream, ExchangeRequest request,
               std::function<void(const DeviceEvent& end)> on_submitted = nullptr) {
    std::vector<DeviceRequest> one(1);
    one[0].request = std::move(request);
    one[0].on_submitted = std::move(on_submitted);
    Enqueue(stream, std::move(one));
  }

  PinnedPoolCounters pool_counters() const { return pool_->counters(); }

 private:
  struct Staged;

  GpuExchanger(std::shared_ptr<GpuDevice> device, FindWorker find_worker);
  Status FindGroup(const std::shared_ptr<Worker>& worker, std::shared_ptr<LocalGroup>* group);
  void Gather(const std::shared_ptr<Worker>& worker, CudaStreamHandle stream,
              ExchangeRequest request);
  void SendRows(const std::shared_ptr<Worker>& worker, const std::shared_ptr<Staged>& staged);
  void CopyIn(const std::shared_ptr<Staged>& staged);

  const std::shared_ptr<GpuDevice> device_;
  const FindWorker find_worker_;
  const std::shared_ptr<PinnedPool> pool_;
  std::unique_ptr<CopyEngine> copies_;
  WorkThreads launcher_{"byteps-launch", 1};  // see LocalGroup's

  Mutex mutex_;
  std::weak_ptr<Worker> worker_ BYTEPS_GUARDED_BY(mutex_);
  std::shared_ptr<LocalGroup> group_ BYTEPS_GUARDED_BY(mutex_);  // of worker_
};

}  // namespace byteps

// GpuExchanger: exchanges tensors that are in a GPU's memory, by way of pinned host memory.
//
// copy out -> exchange with the servers -> copy in: each on threads and streams of its own, so that
// several tensors are in different stages at one time. The stream that computes the tensors never
// waits for any of them.
#ifndef TF_BYTEPS_CC_STAGING_GPU_EXCHANGER_H_
#define TF_BYTEPS_CC_STAGING_GPU_EXCHANGER_H_

#include <functional>
#include <memory>

#include "cc/base/status.h"
#include "cc/gpu/copy_engine.h"
#include "cc/gpu/device.h"
#include "cc/gpu/pinned_pool.h"
#include "cc/worker/exchange_request.h"

namespace byteps {

// Thread-safe.
class GpuExchanger {
 public:
  // As Enqueue of engine/engine.h.
  using EnqueueFunction = std::function<void(ExchangeRequest)>;

  static Status Create(std::shared_ptr<GpuDevice> device, EnqueueFunction enqueue,
                       std::unique_ptr<GpuExchanger>* exchanger);

  // The one of the stream's GPU that hands tensors to this process's engine. Made by the first call
  // for a GPU, and never destroyed.
  static Status OfStream(CudaStreamHandle stream, GpuExchanger** exchanger);

  // Exchanges a tensor whose `input` and `output` (and what `allocate_output` returns) are
  // addresses in the GPU's memory. `stream` is where the input is computed, possibly later, and in
  // whose order the output's memory became free. Otherwise as Enqueue of engine/engine.h.
  void Enqueue(CudaStreamHandle stream, ExchangeRequest request);

  PinnedPoolCounters pool_counters() const { return pool_->counters(); }

 private:
  struct Staged;

  GpuExchanger(std::shared_ptr<GpuDevice> device, EnqueueFunction enqueue);
  void Exchange(const std::shared_ptr<Staged>& staged);
  void CopyIn(const std::shared_ptr<Staged>& staged);

  const EnqueueFunction enqueue_;
  const std::shared_ptr<PinnedPool> pool_;
  std::unique_ptr<CopyEngine> copies_;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_STAGING_GPU_EXCHANGER_H_

// GpuRankDevice: a RankDevice that is a GPU, with NCCL and streams of its own.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cc/gpu/copy_engine.h"
#include "cc/gpu/device.h"
#include "cc/gpu/rank_device.h"
#include "cc/gpu/stream_queue.h"

namespace byteps {

class GpuRankDevice : public RankDevice {
 public:
  // `nccl_libraries`: names to open NCCL by when it is first needed; empty: its usual one.
  static Status Create(std::shared_ptr<GpuDevice> device, std::shared_ptr<PinnedPool> pool,
                       std::vector<std::string> nccl_libraries,
                       std::shared_ptr<RankDevice>* created);
  ~GpuRankDevice() override;

  Status NewGroup(NcclUniqueId* id) override;
  Status Connect(const NcclUniqueId& id, int32_t size, int32_t rank) override;
  void Abort(const Status& reason) override;
  Status Finish() override;
  Status WhenComputed(CudaStreamHandle stream, Done done) override;
  Status StartAfter(CudaStreamHandle stream) override;
  Status RecordEvent(CudaStreamHandle stream, DeviceEvent* event) override;
  Status StartAfterEvent(const DeviceEvent& event) override;
  Status RecordEnd(DeviceEvent* event) override;
  Status AllReduce(const std::vector<Reduction>& reductions, Done done) override;
  Status Reduce(const DeviceSpan& span, NcclOperation operation, int32_t root, Done done) override;
  Status Broadcast(const DeviceSpan& span, int32_t root, Done done) override;
  Status StartCopiesAfterEvent(const DeviceEvent& event) override;
  Status CopyToHost(const void* from, void* to, size_t bytes, Done done) override;
  Status CopyToDevice(const void* from, void* to, size_t bytes, Done done) override;
  bool StreamsWaitForHost() override;
  Status CopyWhenArrived(CudaStreamHandle stream, const ArrivalWord* word, uint32_t value,
                         const void* from, void* to, size_t bytes) override;
  bool Supports(const DeviceForm& form) override { return copies_->Supports(form); }
  Status EncodeToHost(const std::vector<DevicePart>& parts, void* to, Done done) override;
  Status DecodeToDevice(const std::vector<ArrivedPart>& parts, Done done) override;
  Status CopyWithin(const std::vector<DeviceSpan>& spans, Done done) override;
  PinnedPool& pinned_pool() override { return *pool_; }
  MemoryPinner pinner() override;

 private:
  GpuRankDevice(std::shared_ptr<GpuDevice> device, std::shared_ptr<PinnedPool> pool,
                std::vector<std::string> nccl_libraries);

  Status OpenNccl() const;
  Status failure() const;
  Status WaitForWord(CudaStreamHandle stream, const ArrivalWord* word, uint32_t value) const;
  template <typename Start>
  Status Launch(const Start& start, Done done);

  const std::shared_ptr<GpuDevice> device_;
  const std::shared_ptr<PinnedPool> pool_;
  const std::vector<std::string> nccl_libraries_;
  std::unique_ptr<StreamQueue> computed_;  // nothing runs there: it waits for others' streams
  std::unique_ptr<StreamQueue> collectives_;
  std::unique_ptr<CopyEngine> copies_;
  std::once_flag waits_tried_;
  bool streams_wait_ = false;

  // Held while a collective is launched: its communicator must not go in the middle of it.
  std::mutex launch_mutex_;
  std::unique_ptr<NcclCommunicator> communicator_;
  mutable std::mutex failure_mutex_;
  Status failure_;
};

}  // namespace byteps

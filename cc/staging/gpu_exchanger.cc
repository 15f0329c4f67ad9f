#include "cc/staging/gpu_exchanger.h"

#include <map>
#include <utility>

#include "cc/engine/engine.h"
#include "cc/gpu/gpu_rank_device.h"

namespace byteps {

// One gather. Kept by whoever is at work on it: a copy, or the engine, which may still receive into
// the output's block after a failed exchange has ended.
struct GpuExchanger::Staged {
  ExchangeRequest gpu;  // as it was given
  CudaStreamHandle stream = nullptr;
  PinnedPool::Block input;
  PinnedPool::Block output;
  uint64_t output_bytes = 0;
  std::vector<int64_t> rows;

  void Finish(const Status& status) {
    const auto done = std::move(gpu.done);
    gpu.done = nullptr;
    done(status);
    // The engine may keep this for the output's sake.
    if (status.ok()) gpu = ExchangeRequest();
  }
};

GpuExchanger::GpuExchanger(std::shared_ptr<GpuDevice> device, FindWorker find_worker)
    : device_(std::move(device)),
      find_worker_(std::move(find_worker)),
      pool_(PinnedPool::Create(PinnedMemoryOf(device_))) {}

Status GpuExchanger::Create(std::shared_ptr<GpuDevice> device, FindWorker find_worker,
                            std::unique_ptr<GpuExchanger>* exchanger) {
  std::unique_ptr<GpuExchanger> created(new GpuExchanger(device, std::move(find_worker)));
  BYTEPS_RETURN_IF_ERROR(CopyEngine::Create(std::move(device), &created->copies_));
  *exchanger = std::move(created);
  return OkStatus();
}

Status GpuExchanger::OfStream(CudaStreamHandle stream, GpuExchanger** exchanger) {
  struct All {
    Mutex mutex;
    // Each of few: TensorFlow's own.
    std::map<CudaStreamHandle, GpuExchanger*> by_stream BYTEPS_GUARDED_BY(mutex);
    std::map<int, std::unique_ptr<GpuExchanger>> by_gpu BYTEPS_GUARDED_BY(mutex);
  };
  static All* const all = new All;
  MutexLock lock(all->mutex);
  GpuExchanger*& known = all->by_stream[stream];
  if (known == nullptr) {
    std::shared_ptr<GpuDevice> device;
    BYTEPS_RETURN_IF_ERROR(GpuDevice::OfStream(stream, &device));
    std::unique_ptr<GpuExchanger>& of_gpu = all->by_gpu[device->ordinal()];
    if (of_gpu == nullptr) {
      BYTEPS_RETURN_IF_ERROR(Create(device, CurrentWorker, &of_gpu));
    }
    known = of_gpu.get();
  }
  *exchanger = known;
  return OkStatus();
}

void GpuExchanger::Enqueue(CudaStreamHandle stream, std::vector<DeviceRequest> together) {
  const std::shared_ptr<Worker> worker = find_worker_();
  std::shared_ptr<LocalGroup> group;
  const Status status = worker != nullptr ? FindGroup(worker, &group) : OkStatus();
  std::vector<DeviceRequest> for_group;
  for (DeviceRequest& each : together) {
    if (worker == nullptr)
      byteps::Enqueue(std::move(each.request));  // the engine says that there is none
    else if (!status.ok())
      each.request.done(status);
    else if (group->CanExchange(each.request.tensor))
      for_group.push_back(std::move(each));
    else
      Gather(worker, stream, std::move(each.request));
  }
  if (!for_group.empty()) group->Enqueue(stream, std::move(for_group));
}

Status GpuExchanger::FindGroup(const std::shared_ptr<Worker>& worker,
                               std::shared_ptr<LocalGroup>* group) {
  MutexLock lock(mutex_);
  if (worker_.lock() != worker) {
    std::shared_ptr<RankDevice> device;
    BYTEPS_RETURN_IF_ERROR(
        GpuRankDevice::Create(device_, pool_, worker->job().options.nccl_libraries, &device));
    BYTEPS_RETURN_IF_ERROR(LocalGroup::Create(worker.get(), std::move(device), &group_));
    worker_ = worker;
  }
  *group = group_;
  return OkStatus();
}

void GpuExchanger::Gather(const std::shared_ptr<Worker>& worker, CudaStreamHandle stream,
                          ExchangeRequest request) {
  const auto staged = std::make_shared<Staged>();
  staged->gpu = std::move(request);
  staged->gpu.training = worker->training();
  staged->stream = stream;
  const uint64_t bytes = staged->gpu.tensor.ByteCount() * staged->gpu.gather_rows;
  if (bytes == 0) return SendRows(worker, staged);
  Status status = pool_->Take(bytes, &staged->input);
  if (status.ok()) {
    status = copies_->CopyToHost(
        reinterpret_cast<CudaAddress>(staged->gpu.input), staged->input.get(), bytes,
        [this, worker, staged](const Status& result) {
          result.ok() ? SendRows(worker, staged) : staged->Finish(result);
        },
        &stream);
  }
  if (!status.ok()) staged->Finish(status);
}

void GpuExchanger::SendRows(const std::shared_ptr<Worker>& worker,
                            const std::shared_ptr<Staged>& staged) {
  ExchangeRequest request;
  request.tensor = staged->gpu.tensor;
  request.priority = staged->gpu.priority;
  request.training = staged->gpu.training;
  request.input = staged->input.get();
  request.gather_rows = staged->gpu.gather_rows;
  // The engine keeps `staged` alive for as long as it may call this.
  request.allocate_output = [pool = pool_,
                             raw = staged.get()](const std::vector<int64_t>& rows) -> void* {
    raw->rows = rows;
    uint64_t total = 0;
    for (const int64_t count : rows) total += count;
    raw->output_bytes = total * raw->gpu.tensor.ByteCount();
    return pool->Take(raw->output_bytes, &raw->output).ok() ? raw->output.get() : nullptr;
  };
  request.keep_alive = staged;
  request.done = [this, staged](const Status& status) {
    if (!status.ok()) return staged->Finish(status);
    launcher_.Add([this, staged] { CopyIn(staged); });
  };
  worker->Enqueue(std::move(request));
}

void GpuExchanger::CopyIn(const std::shared_ptr<Staged>& staged) {
  ExchangeRequest& gpu = staged->gpu;
  // The result gets its memory only now, and in the stream's order it may be in use.
  gpu.output = gpu.allocate_output(staged->rows);
  if (gpu.output == nullptr) {
    return staged->Finish(ResourceExhausted("tensor \"" + gpu.tensor.name +
                                            "\": no GPU memory for " +
                                            std::to_string(staged->output_bytes) + " bytes"));
  }
  if (staged->output_bytes == 0) return staged->Finish(OkStatus());
  const Status status = copies_->CopyToDevice(
      staged->output.get(), reinterpret_cast<CudaAddress>(gpu.output), staged->output_bytes,
      [staged](const Status& result) { staged->Finish(result); }, &staged->stream);
  if (!status.ok()) staged->Finish(status);
}

}  // namespace byteps

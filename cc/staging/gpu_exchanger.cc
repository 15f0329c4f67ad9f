#include "cc/staging/gpu_exchanger.h"

#include <map>
#include <mutex>
#include <utility>

#include "cc/engine/engine.h"

namespace byteps {

// One exchange. Kept by whoever is at work on it: a copy, or the engine, which may still receive
// into the output's block after a failed exchange has ended.
struct GpuExchanger::Staged {
  ExchangeRequest gpu;  // as it was given
  CudaStreamHandle stream = nullptr;
  PinnedPool::Block input;
  PinnedPool::Block output;
  uint64_t output_bytes = 0;
  std::vector<int64_t> rows;  // kGather

  void Finish(const Status& status) {
    const auto done = std::move(gpu.done);
    gpu.done = nullptr;
    done(status);
  }
};

GpuExchanger::GpuExchanger(std::shared_ptr<GpuDevice> device, EnqueueFunction enqueue)
    : enqueue_(std::move(enqueue)), pool_(PinnedPool::Create(PinnedMemoryOf(std::move(device)))) {}

Status GpuExchanger::Create(std::shared_ptr<GpuDevice> device, EnqueueFunction enqueue,
                            std::unique_ptr<GpuExchanger>* exchanger) {
  std::unique_ptr<GpuExchanger> created(new GpuExchanger(device, std::move(enqueue)));
  BYTEPS_RETURN_IF_ERROR(CopyEngine::Create(std::move(device), &created->copies_));
  *exchanger = std::move(created);
  return OkStatus();
}

Status GpuExchanger::OfStream(CudaStreamHandle stream, GpuExchanger** exchanger) {
  struct All {
    std::mutex mutex;
    std::map<CudaStreamHandle, GpuExchanger*> by_stream;  // each of few: TensorFlow's own
    std::map<int, std::unique_ptr<GpuExchanger>> by_gpu;
  };
  static All* const all = new All;
  std::lock_guard<std::mutex> lock(all->mutex);
  GpuExchanger*& known = all->by_stream[stream];
  if (known == nullptr) {
    std::shared_ptr<GpuDevice> device;
    BYTEPS_RETURN_IF_ERROR(GpuDevice::OfStream(stream, &device));
    std::unique_ptr<GpuExchanger>& of_gpu = all->by_gpu[device->ordinal()];
    if (of_gpu == nullptr) {
      const auto enqueue = [](ExchangeRequest request) { byteps::Enqueue(std::move(request)); };
      BYTEPS_RETURN_IF_ERROR(Create(device, enqueue, &of_gpu));
    }
    known = of_gpu.get();
  }
  *exchanger = known;
  return OkStatus();
}

void GpuExchanger::Enqueue(CudaStreamHandle stream, ExchangeRequest request) {
  const auto staged = std::make_shared<Staged>();
  staged->gpu = std::move(request);
  staged->stream = stream;
  const TensorDescription& tensor = staged->gpu.tensor;
  const bool is_gather = tensor.kind == ExchangeKind::kGather;
  const uint64_t bytes = tensor.ByteCount() * (is_gather ? staged->gpu.gather_rows : 1);
  Status status = pool_->Take(bytes, &staged->input);
  if (status.ok() && !is_gather) {
    staged->output_bytes = bytes;
    status = pool_->Take(bytes, &staged->output);
  }
  if (status.ok() && bytes == 0) return Exchange(staged);
  // Also what a broadcast's receivers have: behind this copy the output's memory is free.
  if (status.ok()) {
    status = copies_->CopyToHost(stream, reinterpret_cast<CudaAddress>(staged->gpu.input),
                                 staged->input.get(), bytes, [this, staged](const Status& result) {
                                   result.ok() ? Exchange(staged) : staged->Finish(result);
                                 });
  }
  if (!status.ok()) staged->Finish(status);
}

void GpuExchanger::Exchange(const std::shared_ptr<Staged>& staged) {
  ExchangeRequest request;
  request.tensor = staged->gpu.tensor;
  request.priority = staged->gpu.priority;
  request.input = staged->input.get();
  request.gather_rows = staged->gpu.gather_rows;
  request.output = staged->output.get();
  if (staged->gpu.allocate_output != nullptr) {
    // The engine keeps `staged` alive for as long as it may call this.
    request.allocate_output = [pool = pool_,
                               raw = staged.get()](const std::vector<int64_t>& rows) -> void* {
      raw->rows = rows;
      uint64_t total = 0;
      for (const int64_t count : rows) total += count;
      raw->output_bytes = total * raw->gpu.tensor.ByteCount();
      return pool->Take(raw->output_bytes, &raw->output).ok() ? raw->output.get() : nullptr;
    };
  }
  request.keep_alive = staged;
  request.done = [this, staged](const Status& status) {
    status.ok() ? CopyIn(staged) : staged->Finish(status);
  };
  enqueue_(std::move(request));
}

void GpuExchanger::CopyIn(const std::shared_ptr<Staged>& staged) {
  ExchangeRequest& gpu = staged->gpu;
  // A gathered result gets its memory only now, and in the stream's order it may be in use.
  const bool is_new = gpu.allocate_output != nullptr;
  if (is_new) gpu.output = gpu.allocate_output(staged->rows);
  if (is_new && gpu.output == nullptr) {
    return staged->Finish(ResourceExhausted("tensor \"" + gpu.tensor.name +
                                            "\": no GPU memory for " +
                                            std::to_string(staged->output_bytes) + " bytes"));
  }
  if (staged->output_bytes == 0) return staged->Finish(OkStatus());
  const Status status = copies_->CopyToDevice(
      staged->output.get(), reinterpret_cast<CudaAddress>(gpu.output), staged->output_bytes,
      [staged](const Status& result) { staged->Finish(result); },
      is_new ? &staged->stream : nullptr);
  if (!status.ok()) staged->Finish(status);
}

}  // namespace byteps

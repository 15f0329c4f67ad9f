#include "cc/gpu/gpu_rank_device.h"

#include <new>
#include <utility>

namespace byteps {
namespace {

constexpr unsigned int kWaitUntilReached = 0;

CudaAddress Address(const void* pointer) { return reinterpret_cast<CudaAddress>(pointer); }

}  // namespace

GpuRankDevice::GpuRankDevice(std::shared_ptr<GpuDevice> device, std::shared_ptr<PinnedPool> pool,
                             std::vector<std::string> nccl_libraries)
    : device_(std::move(device)),
      pool_(std::move(pool)),
      nccl_libraries_(std::move(nccl_libraries)) {}

Status GpuRankDevice::Create(std::shared_ptr<GpuDevice> device, std::shared_ptr<PinnedPool> pool,
                             std::vector<std::string> nccl_libraries,
                             std::shared_ptr<RankDevice>* created) {
  std::shared_ptr<GpuRankDevice> made(
      new GpuRankDevice(device, std::move(pool), std::move(nccl_libraries)));
  BYTEPS_RETURN_IF_ERROR(StreamQueue::Create(device, "byteps-ready", &made->computed_));
  BYTEPS_RETURN_IF_ERROR(StreamQueue::Create(device, "byteps-nccl", &made->collectives_));
  BYTEPS_RETURN_IF_ERROR(CopyEngine::Create(std::move(device), &made->copies_));
  *created = std::move(made);
  return OkStatus();
}

GpuRankDevice::~GpuRankDevice() {
  // What was begun ends first: an end may begin the next stage.
  computed_.reset();
  collectives_.reset();
  copies_.reset();
}

Status GpuRankDevice::OpenNccl() const {
  const Nccl* nccl = nullptr;
  return nccl_libraries_.empty() ? Nccl::Get(&nccl) : Nccl::Get(nccl_libraries_, &nccl);
}

Status GpuRankDevice::NewGroup(NcclUniqueId* id) {
  BYTEPS_RETURN_IF_ERROR(OpenNccl());
  return NcclCommunicator::NewGroup(id);
}

Status GpuRankDevice::Connect(const NcclUniqueId& id, int32_t size, int32_t rank) {
  BYTEPS_RETURN_IF_ERROR(OpenNccl());
  std::unique_ptr<NcclCommunicator> communicator;
  BYTEPS_RETURN_IF_ERROR(NcclCommunicator::Connect(device_, id, size, rank, &communicator));
  std::lock_guard<std::mutex> lock(launch_mutex_);
  BYTEPS_RETURN_IF_ERROR(failure());
  communicator_ = std::move(communicator);
  return OkStatus();
}

Status GpuRankDevice::failure() const {
  std::lock_guard<std::mutex> lock(failure_mutex_);
  return failure_;
}

void GpuRankDevice::Abort(const Status& reason) {
  {
    std::lock_guard<std::mutex> lock(failure_mutex_);
    if (failure_.ok()) failure_ = reason;
  }
  std::unique_ptr<NcclCommunicator> aborted;
  std::lock_guard<std::mutex> lock(launch_mutex_);
  aborted.swap(communicator_);
}

Status GpuRankDevice::Finish() {
  std::lock_guard<std::mutex> lock(launch_mutex_);
  if (communicator_ == nullptr) return OkStatus();
  const std::unique_ptr<NcclCommunicator> finished = std::move(communicator_);
  return finished->Finish();
}

Status GpuRankDevice::WhenComputed(CudaStreamHandle stream, Done done) {
  const auto nothing = [](CudaStreamHandle) { return OkStatus(); };
  return computed_->AddBehind(stream, nothing, std::move(done));
}

Status GpuRankDevice::StartAfter(CudaStreamHandle stream) {
  const auto nothing = [](CudaStreamHandle) { return OkStatus(); };
  return collectives_->AddBehind(stream, nothing, [](const Status&) {});
}

Status GpuRankDevice::RecordEvent(CudaStreamHandle stream, DeviceEvent* recorded) {
  std::shared_ptr<CudaEvent> event;
  BYTEPS_RETURN_IF_ERROR(computed_->RecordEvent(stream, &event));
  *recorded = std::move(event);
  return OkStatus();
}

Status GpuRankDevice::StartAfterEvent(const DeviceEvent& recorded) {
  return collectives_->StartAfter(static_cast<CudaEvent*>(recorded.get()));
}

Status GpuRankDevice::RecordEnd(DeviceEvent* recorded) {
  std::shared_ptr<CudaEvent> event;
  BYTEPS_RETURN_IF_ERROR(collectives_->RecordEnd(&event));
  *recorded = std::move(event);
  return OkStatus();
}

template <typename Start>
Status GpuRankDevice::Launch(const Start& start, Done done) {
  std::lock_guard<std::mutex> lock(launch_mutex_);
  if (communicator_ == nullptr) {
    const Status reason = failure();
    return reason.ok() ? Internal("a collective without a group") : reason;
  }
  return collectives_->Add(nullptr, start, [this, done = std::move(done)](const Status& result) {
    // An aborted collective ends, too.
    const Status reason = failure();
    done(reason.ok() ? result : reason);
  });
}

Status GpuRankDevice::AllReduce(const std::vector<Reduction>& reductions, Done done) {
  const auto start = [&](CudaStreamHandle stream) {
    return communicator_->AllReduce(reductions, stream);
  };
  return Launch(start, std::move(done));
}

Status GpuRankDevice::Reduce(const DeviceSpan& span, NcclOperation operation, int32_t root,
                             Done done) {
  const auto start = [&](CudaStreamHandle stream) {
    return communicator_->Reduce(span.from, span.to, span.count, span.dtype, operation, root,
                                 stream);
  };
  return Launch(start, std::move(done));
}

Status GpuRankDevice::Broadcast(const DeviceSpan& span, int32_t root, Done done) {
  const auto start = [&](CudaStreamHandle stream) {
    return communicator_->Broadcast(span.from, span.to, span.count, span.dtype, root, stream);
  };
  return Launch(start, std::move(done));
}

Status GpuRankDevice::StartCopiesAfterEvent(const DeviceEvent& recorded) {
  return copies_->StartAfter(static_cast<CudaEvent*>(recorded.get()));
}

Status GpuRankDevice::WaitForWord(CudaStreamHandle stream, const ArrivalWord* word,
                                  uint32_t value) const {
  const CudaDriver& driver = device_->driver();
  CudaAddress seen = 0;
  BYTEPS_RETURN_IF_ERROR(
      driver.Check(driver.cuMemHostGetDevicePointer(&seen, const_cast<ArrivalWord*>(word), 0),
                   "cuMemHostGetDevicePointer"));
  return driver.Check(driver.cuStreamWaitValue32(stream, seen, value, kWaitUntilReached),
                      "cuStreamWaitValue32");
}

// Some drivers have the function, and refuse it for their GPUs.
bool GpuRankDevice::StreamsWaitForHost() {
  std::call_once(waits_tried_, [this] {
    if (device_->driver().cuStreamWaitValue32 == nullptr) return;
    PinnedPool::Block block;
    if (!pool_->Take(sizeof(ArrivalWord), &block).ok()) return;
    const auto* const word = new (block.get()) ArrivalWord(1);
    const auto wait = [&](CudaStreamHandle stream) { return WaitForWord(stream, word, 1); };
    streams_wait_ = computed_->Add(nullptr, wait, [block](const Status&) {}).ok();
  });
  return streams_wait_;
}

Status GpuRankDevice::CopyWhenArrived(CudaStreamHandle stream, const ArrivalWord* word,
                                      uint32_t value, const void* from, void* to, size_t bytes) {
  const CudaDriver& driver = device_->driver();
  const ScopedContext scope(*device_);
  BYTEPS_RETURN_IF_ERROR(scope.status());
  BYTEPS_RETURN_IF_ERROR(WaitForWord(stream, word, value));
  return driver.Check(driver.cuMemcpyHtoDAsync(Address(to), from, bytes, stream),
                      "cuMemcpyHtoDAsync");
}

MemoryPinner GpuRankDevice::pinner() {
  MemoryPinner pinner;
  pinner.pin = [device = device_](void* address, size_t bytes) {
    return PinPages(*device, address, bytes);
  };
  pinner.unpin = [device = device_](void* address) { UnpinPages(*device, address); };
  return pinner;
}

Status GpuRankDevice::CopyToHost(const void* from, void* to, size_t bytes, Done done) {
  return copies_->CopyToHost(Address(from), to, bytes, std::move(done));
}

Status GpuRankDevice::CopyToDevice(const void* from, void* to, size_t bytes, Done done) {
  return copies_->CopyToDevice(from, Address(to), bytes, std::move(done));
}

Status GpuRankDevice::EncodeToHost(const std::vector<DevicePart>& parts, void* to, Done done) {
  return copies_->EncodeToHost(parts, to, std::move(done));
}

Status GpuRankDevice::DecodeToDevice(const std::vector<ArrivedPart>& parts, Done done) {
  return copies_->DecodeToDevice(parts, std::move(done));
}

Status GpuRankDevice::CopyWithin(const std::vector<DeviceSpan>& spans, Done done) {
  const CudaDriver& driver = device_->driver();
  const auto start = [&](CudaStreamHandle stream) {
    for (const DeviceSpan& span : spans) {
      if (span.from == span.to) continue;
      BYTEPS_RETURN_IF_ERROR(driver.Check(
          driver.cuMemcpyDtoDAsync(Address(span.to), Address(span.from), span.bytes(), stream),
          "cuMemcpyDtoDAsync"));
    }
    return OkStatus();
  };
  return collectives_->Add(nullptr, start, std::move(done));
}

}  // namespace byteps

#include "cc/gpu/copy_engine.h"

#include <utility>

#include "cc/base/logging.h"

namespace byteps {

Status CopyEngine::Create(std::shared_ptr<GpuDevice> device, std::unique_ptr<CopyEngine>* engine) {
  std::unique_ptr<CopyEngine> created(new CopyEngine(device));
  BYTEPS_RETURN_IF_ERROR(StreamQueue::Create(device, "byteps-to-host", &created->to_host_));
  BYTEPS_RETURN_IF_ERROR(
      StreamQueue::Create(std::move(device), "byteps-to-gpu", &created->to_device_));
  *engine = std::move(created);
  return OkStatus();
}

CopyEngine::~CopyEngine() {
  // A copy to the host may be followed by one to the device.
  to_host_.reset();
  to_device_.reset();
}

Status CopyEngine::CopyToHost(CudaAddress from, void* to, size_t bytes, Done done,
                              const CudaStreamHandle* producer) {
  const auto start = [&](CudaStreamHandle stream) {
    return driver_.Check(driver_.cuMemcpyDtoHAsync(to, from, bytes, stream), "cuMemcpyDtoHAsync");
  };
  if (producer != nullptr) return to_host_->AddBehind(*producer, start, std::move(done));
  return to_host_->Add(nullptr, start, std::move(done));
}

Status CopyEngine::CopyToDevice(const void* from, CudaAddress to, size_t bytes, Done done,
                                const CudaStreamHandle* owner) {
  const auto start = [&](CudaStreamHandle stream) {
    return driver_.Check(driver_.cuMemcpyHtoDAsync(to, from, bytes, stream), "cuMemcpyHtoDAsync");
  };
  if (owner != nullptr) return to_device_->AddBehind(*owner, start, std::move(done));
  return to_device_->Add(nullptr, start, std::move(done));
}

bool CopyEngine::Supports(const DeviceForm& form) {
  if (!DeviceCodec::Supports(form)) return false;
  std::call_once(codec_made_, [this] {
    const Status status = DeviceCodec::Create(device_, &codec_);
    if (!status.ok())
      LogWarning("gradients are compressed on the CPU, which takes longer than on " +
                 device_->name() + ": " + status.message());
  });
  return codec_ != nullptr;
}

Status CopyEngine::EncodeToHost(const std::vector<DevicePart>& parts, void* to, Done done) {
  const auto start = [&](CudaStreamHandle stream) {
    return codec_->EncodeToHost(parts, static_cast<uint8_t*>(to), stream);
  };
  return to_host_->Add(nullptr, start, std::move(done));
}

Status CopyEngine::DecodeToDevice(const std::vector<ArrivedPart>& parts, Done done) {
  const auto start = [&](CudaStreamHandle stream) { return codec_->DecodeToDevice(parts, stream); };
  return to_device_->Add(nullptr, start, std::move(done));
}

}  // namespace byteps

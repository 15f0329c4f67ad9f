#include "cc/gpu/device_codec.h"

#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "cc/gpu/codec_kernels_ptx.h"

namespace byteps {
namespace {

// Kernels of codec_kernels.cu; null: that way is not used.
struct NamedKernels {
  CodecId id;
  const char* encode;
  const char* decode;
};
constexpr std::array<NamedKernels, 5> kCodecs = {{
    {CodecId::kInt8, "EncodeInt8", "DecodeInt8"},
    {CodecId::kInt4, "EncodeInt4", "DecodeInt4"},
    {CodecId::kFloat8, "EncodeFloat8", "DecodeFloat8"},
    {CodecId::kThc, "EncodeThc", nullptr},
    {CodecId::kThcSum, nullptr, "DecodeThcSum"},
}};

// As many as there are codecs, if it is none of them.
size_t IndexOf(CodecId id) {
  size_t i = 0;
  while (i < kCodecs.size() && kCodecs[i].id != id) ++i;
  return i;
}

bool IsOfThc(const DeviceForm& form) {
  return form.codec == CodecId::kThc || form.codec == CodecId::kThcSum;
}

constexpr unsigned int kThreads = 256;
constexpr uint64_t kWarps = kThreads / 32;
// Enough to keep a GPU's memory busy; what else the GPU computes meanwhile needs it, too.
constexpr uint64_t kMostGroups = 512;

// Elements whose blocks, all of them whole, fit in `bytes`.
uint64_t ElementsIn(uint64_t bytes, const DeviceForm& form) {
  return bytes / form.BlockBytes(form.block) * form.block;
}

}  // namespace

Status DeviceCodec::Create(std::shared_ptr<GpuDevice> device, std::unique_ptr<DeviceCodec>* codec) {
  std::unique_ptr<DeviceCodec> created(new DeviceCodec(std::move(device)));
  BYTEPS_RETURN_IF_ERROR(created->Load());
  *codec = std::move(created);
  return OkStatus();
}

Status DeviceCodec::Load() {
  {
    const CudaDriver& driver = device_->driver();
    const ScopedContext scope(*device_);
    BYTEPS_RETURN_IF_ERROR(scope.status());
    BYTEPS_RETURN_IF_ERROR(
        driver.Check(driver.cuModuleLoadData(&module_, kCodecKernelsPtx), "cuModuleLoadData"));
    const auto find = [&](const char* name, CudaFunctionHandle* kernel) {
      if (name == nullptr) return OkStatus();
      return driver.Check(driver.cuModuleGetFunction(kernel, module_, name), "cuModuleGetFunction");
    };
    for (size_t i = 0; i < kCodecs.size(); ++i) {
      BYTEPS_RETURN_IF_ERROR(find(kCodecs[i].encode, &kernels_[i].encode));
      BYTEPS_RETURN_IF_ERROR(find(kCodecs[i].decode, &kernels_[i].decode));
    }
  }
  BYTEPS_RETURN_IF_ERROR(DeviceBuffer::Create(device_, kScratchBytes, &encoded_));
  return DeviceBuffer::Create(device_, kScratchBytes, &arrived_);
}

bool DeviceCodec::Supports(const DeviceForm& form) { return IndexOf(form.codec) < kCodecs.size(); }

DeviceCodec::~DeviceCodec() {
  if (module_ == nullptr) return;
  const ScopedContext scope(*device_);
  if (scope.status().ok()) device_->driver().cuModuleUnload(module_);
}

// A warp takes a block with a scale, a group of threads one of thc.
Status DeviceCodec::Launch(CudaFunctionHandle kernel, const DeviceForm& form, uint64_t elements,
                           void** arguments, CudaStreamHandle stream) const {
  if (kernel == nullptr) return Internal("a codec's kernel is not used this way");
  const uint64_t blocks = (elements + form.block - 1) / form.block;
  const uint64_t in_group = IsOfThc(form) ? 1 : kWarps;
  const auto groups =
      static_cast<unsigned int>(std::min((blocks + in_group - 1) / in_group, kMostGroups));
  const CudaDriver& driver = device_->driver();
  return driver.Check(
      driver.cuLaunchKernel(kernel, groups, 1, 1, kThreads, 1, 1, 0, stream, arguments, nullptr),
      "cuLaunchKernel");
}

Status DeviceCodec::EncodeToHost(const DevicePart& part, uint8_t* to,
                                 CudaStreamHandle stream) const {
  const CudaDriver& driver = device_->driver();
  const DeviceForm& form = part.form;
  if (form.codec == CodecId::kRaw) {
    return driver.Check(driver.cuMemcpyDtoHAsync(to, reinterpret_cast<CudaAddress>(part.values),
                                                 part.bytes, stream),
                        "cuMemcpyDtoHAsync");
  }
  const uint64_t piece = ElementsIn(kScratchBytes, form);
  for (uint64_t done = 0; done < part.elements; done += piece) {
    auto values = reinterpret_cast<CudaAddress>(part.values) + done * sizeof(float);
    uint64_t elements = std::min(piece, part.elements - done);
    uint32_t block = form.block;
    uint32_t stochastic = form.is_stochastic;
    auto low = static_cast<uint32_t>(form.random_state);
    auto high = static_cast<uint32_t>(form.random_state >> 32);
    uint64_t first = done;
    CudaAddress out = encoded_->address();
    void* with_scale[] = {&values, &elements, &block, &stochastic, &low, &high, &first, &out};
    void* of_thc[] = {&values, &elements, &low, &high, &first, &out};
    const uint64_t bytes = form.Bytes(elements);
    BYTEPS_RETURN_IF_ERROR(Launch(kernels_[IndexOf(form.codec)].encode, form, elements,
                                  IsOfThc(form) ? of_thc : with_scale, stream));
    BYTEPS_RETURN_IF_ERROR(driver.Check(
        driver.cuMemcpyDtoHAsync(to + form.Bytes(done), out, bytes, stream), "cuMemcpyDtoHAsync"));
  }
  return OkStatus();
}

Status DeviceCodec::DecodeToDevice(const DeviceForm& form, const uint8_t* from, uint64_t elements,
                                   CudaAddress to, CudaStreamHandle stream) const {
  const CudaDriver& driver = device_->driver();
  const uint64_t piece = ElementsIn(kScratchBytes, form);
  for (uint64_t done = 0; done < elements; done += piece) {
    uint64_t count = std::min(piece, elements - done);
    CudaAddress data = arrived_->address();
    CudaAddress target = to + done * sizeof(float);
    uint32_t block = form.block, bits = form.element_bits, workers = form.workers;
    float divisor = form.divisor;
    void* with_scale[] = {&data, &count, &block, &target};
    void* of_thc[] = {&data, &count, &bits, &workers, &divisor, &target};
    BYTEPS_RETURN_IF_ERROR(driver.Check(
        driver.cuMemcpyHtoDAsync(data, from + form.Bytes(done), form.Bytes(count), stream),
        "cuMemcpyHtoDAsync"));
    BYTEPS_RETURN_IF_ERROR(Launch(kernels_[IndexOf(form.codec)].decode, form, count,
                                  IsOfThc(form) ? of_thc : with_scale, stream));
  }
  return OkStatus();
}

}  // namespace byteps

#include "cc/gpu/device_codec.h"

#include <algorithm>
#include <array>
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

// The groups of threads of a kernel.
struct Groups {
  unsigned int threads;
  uint64_t blocks;  // at a time
  uint64_t most;    // enough to keep a GPU busy, which has something else to compute meanwhile
};
constexpr Groups kGroups = {256, 256 / 32, 512};  // a warp takes a block
constexpr Groups kThcGroups = {64, 1, 256};
constexpr uint64_t kRotatedBytes = kThcGroups.most * 4096 * sizeof(float);

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
  BYTEPS_RETURN_IF_ERROR(DeviceBuffer::Create(device_, kScratchBytes, &arrived_));
  return DeviceBuffer::Create(device_, 2 * kRotatedBytes, &rotated_);
}

bool DeviceCodec::Supports(const DeviceForm& form) { return IndexOf(form.codec) < kCodecs.size(); }

DeviceCodec::~DeviceCodec() {
  if (module_ == nullptr) return;
  const ScopedContext scope(*device_);
  if (scope.status().ok()) device_->driver().cuModuleUnload(module_);
}

// `elements` of the longest of so many parts.
Status DeviceCodec::Launch(CudaFunctionHandle kernel, const DeviceForm& form, uint64_t elements,
                           uint64_t parts, void** arguments, CudaStreamHandle stream) const {
  if (kernel == nullptr) return Internal("a codec's kernel is not used this way");
  const Groups& groups = IsOfThc(form) ? kThcGroups : kGroups;
  const uint64_t at_a_time = form.block * groups.blocks;
  const uint64_t wanted = (elements + at_a_time - 1) / at_a_time;
  const auto count = static_cast<unsigned int>(std::min(wanted, groups.most / parts));
  const CudaDriver& driver = device_->driver();
  return driver.Check(driver.cuLaunchKernel(kernel, count, static_cast<unsigned int>(parts), 1,
                                            groups.threads, 1, 1, 0, stream, arguments, nullptr),
                      "cuLaunchKernel");
}

// As codec_kernels.cu has them.
struct DeviceCodec::EncodedPart {
  CudaAddress values;
  uint64_t elements;
  uint64_t random_state;
  uint64_t first;
  CudaAddress out;
};
struct DeviceCodec::DecodedPart {
  CudaAddress data;
  uint64_t elements;
  CudaAddress target;
};

// Encoded they are one after the other in scratch memory.
template <typename KernelPart>
struct DeviceCodec::Together {
  DeviceForm form;
  std::array<KernelPart, kPartsTogether> parts = {};
  uint64_t count = 0;
  uint64_t most_elements = 0;
  uint64_t bytes = 0;

  bool Takes(const DeviceForm& other, uint64_t more_bytes) const {
    return count == 0 ||
           (count < kPartsTogether && bytes + more_bytes <= kScratchBytes && form.IsLike(other));
  }

  // Collects a part in pieces that fit; `launch` takes what there is when no more does. `piece`
  // makes one of so many elements, from the part's `first` on, encoded `at` some byte of scratch
  // memory.
  template <typename NewPiece, typename LaunchAll>
  Status Add(const DeviceForm& of_part, uint64_t elements, const NewPiece& piece,
             const LaunchAll& launch) {
    const uint64_t most = ElementsIn(kScratchBytes, of_part);
    for (uint64_t first = 0; first < elements; first += most) {
      const uint64_t piece_elements = std::min(most, elements - first);
      const uint64_t piece_bytes = of_part.Bytes(piece_elements);
      if (!Takes(of_part, piece_bytes)) BYTEPS_RETURN_IF_ERROR(launch());
      BYTEPS_RETURN_IF_ERROR(piece(first, piece_elements, bytes, &parts[count]));
      form = of_part;
      ++count;
      most_elements = std::max(most_elements, piece_elements);
      bytes += piece_bytes;
    }
    return OkStatus();
  }
};

Status DeviceCodec::EncodeTogether(Together<EncodedPart>* together, uint8_t** to,
                                   CudaStreamHandle stream) const {
  if (together->count == 0) return OkStatus();
  Together<EncodedPart> encoded = std::exchange(*together, {});
  const DeviceForm& form = encoded.form;
  uint32_t block = form.block, stochastic = form.is_stochastic;
  CudaAddress rotated = rotated_->address();
  void* with_scale[] = {&encoded.parts, &block, &stochastic};
  void* of_thc[] = {&encoded.parts, &rotated};
  BYTEPS_RETURN_IF_ERROR(Launch(kernels_[IndexOf(form.codec)].encode, form, encoded.most_elements,
                                encoded.count, IsOfThc(form) ? of_thc : with_scale, stream));
  const CudaDriver& driver = device_->driver();
  BYTEPS_RETURN_IF_ERROR(
      driver.Check(driver.cuMemcpyDtoHAsync(*to, encoded_->address(), encoded.bytes, stream),
                   "cuMemcpyDtoHAsync"));
  *to += encoded.bytes;
  return OkStatus();
}

Status DeviceCodec::EncodeToHost(const std::vector<DevicePart>& parts, uint8_t* to,
                                 CudaStreamHandle stream) const {
  const CudaDriver& driver = device_->driver();
  Together<EncodedPart> together;
  const auto launch = [&] { return EncodeTogether(&together, &to, stream); };
  for (const DevicePart& part : parts) {
    const DeviceForm& form = part.form;
    const auto values = reinterpret_cast<CudaAddress>(part.values);
    if (form.codec == CodecId::kRaw) {
      BYTEPS_RETURN_IF_ERROR(launch());
      BYTEPS_RETURN_IF_ERROR(driver.Check(driver.cuMemcpyDtoHAsync(to, values, part.bytes, stream),
                                          "cuMemcpyDtoHAsync"));
      to += part.bytes;
      continue;
    }
    const auto piece = [&](uint64_t first, uint64_t elements, uint64_t at, EncodedPart* encoded) {
      *encoded = {values + first * sizeof(float), elements, form.random_state, first,
                  encoded_->address() + at};
      return OkStatus();
    };
    BYTEPS_RETURN_IF_ERROR(together.Add(form, part.elements, piece, launch));
  }
  return launch();
}

Status DeviceCodec::DecodeTogether(Together<DecodedPart>* together, CudaStreamHandle stream) const {
  if (together->count == 0) return OkStatus();
  Together<DecodedPart> decoded = std::exchange(*together, {});
  const DeviceForm& form = decoded.form;
  uint32_t block = form.block, bits = form.element_bits, workers = form.workers;
  float divisor = form.divisor;
  CudaAddress rotated = rotated_->address() + kRotatedBytes;
  void* with_scale[] = {&decoded.parts, &block};
  void* of_thc[] = {&decoded.parts, &bits, &workers, &divisor, &rotated};
  return Launch(kernels_[IndexOf(form.codec)].decode, form, decoded.most_elements, decoded.count,
                IsOfThc(form) ? of_thc : with_scale, stream);
}

Status DeviceCodec::DecodeToDevice(const std::vector<ArrivedPart>& parts,
                                   CudaStreamHandle stream) const {
  const CudaDriver& driver = device_->driver();
  const auto copy = [&](CudaAddress to, const uint8_t* from, uint64_t bytes) {
    return driver.Check(driver.cuMemcpyHtoDAsync(to, from, bytes, stream), "cuMemcpyHtoDAsync");
  };
  Together<DecodedPart> together;
  const auto launch = [&] { return DecodeTogether(&together, stream); };
  for (const ArrivedPart& part : parts) {
    const DeviceForm& form = part.form;
    const auto* const from = static_cast<const uint8_t*>(part.from);
    const auto to = reinterpret_cast<CudaAddress>(part.to);
    if (form.codec == CodecId::kRaw) {
      BYTEPS_RETURN_IF_ERROR(copy(to, from, part.elements * sizeof(float)));
      continue;
    }
    const auto piece = [&](uint64_t first, uint64_t elements, uint64_t at, DecodedPart* decoded) {
      *decoded = {arrived_->address() + at, elements, to + first * sizeof(float)};
      return copy(decoded->data, from + form.Bytes(first), form.Bytes(elements));
    };
    BYTEPS_RETURN_IF_ERROR(together.Add(form, part.elements, piece, launch));
  }
  return launch();
}

}  // namespace byteps

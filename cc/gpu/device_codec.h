// DeviceCodec: encodes and decodes parts in a GPU's memory, so that only what travels is copied
// between the GPU and the host.
//
// The kernels are PTX, which the driver compiles for its GPU (gpu/codec_kernels.cu). They give the
// same bits as the codecs of codec/.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/status.h"
#include "cc/gpu/device.h"
#include "cc/gpu/device_form.h"

namespace byteps {

// Thread-safe. The calls put work on a stream, on which they keep the order, and return at once.
class DeviceCodec {
 public:
  // Loads the kernels and takes a few MB of the GPU's memory, or says why it cannot.
  static Status Create(std::shared_ptr<GpuDevice> device, std::unique_ptr<DeviceCodec>* codec);
  ~DeviceCodec();

  // One way at least, in which the codec is used: contributions go out, sums come back.
  static bool Supports(const DeviceForm& form);

  // Encodes parts and copies their bytes to `to`, one after the other, which is pinned host memory.
  // All calls of this function must be given one stream: they share memory. A launch encodes
  // several parts: beside what else the GPU computes it waits for its turn.
  Status EncodeToHost(const std::vector<DevicePart>& parts, uint8_t* to,
                      CudaStreamHandle stream) const;

  // The way back, from pinned memory. Again one stream, perhaps another one.
  Status DecodeToDevice(const std::vector<ArrivedPart>& parts, CudaStreamHandle stream) const;

 private:
  struct Kernels {
    CudaFunctionHandle encode = nullptr;
    CudaFunctionHandle decode = nullptr;
  };

  // What is between a kernel and a copy. Longer parts go piece by piece.
  static constexpr uint64_t kScratchBytes = 4 << 20;

  // What one launch takes, as the kernels have it.
  struct EncodedPart;
  struct DecodedPart;
  template <typename KernelPart>
  struct Together;

  explicit DeviceCodec(std::shared_ptr<GpuDevice> device) : device_(std::move(device)) {}
  Status Load();
  Status Launch(CudaFunctionHandle kernel, const DeviceForm& form, uint64_t elements,
                uint64_t parts, void** arguments, CudaStreamHandle stream) const;
  // Encodes what has been collected, moves `to` behind its bytes and leaves nothing.
  Status EncodeTogether(Together<EncodedPart>* together, uint8_t** to,
                        CudaStreamHandle stream) const;
  // Decodes what has been collected, and leaves nothing.
  Status DecodeTogether(Together<DecodedPart>* together, CudaStreamHandle stream) const;

  const std::shared_ptr<GpuDevice> device_;
  CudaModuleHandle module_ = nullptr;
  std::array<Kernels, 5> kernels_;
  std::unique_ptr<DeviceBuffer> encoded_;  // to be sent
  std::unique_ptr<DeviceBuffer> arrived_;  // received
  std::unique_ptr<DeviceBuffer> rotated_;  // blocks of thc, first of those to be sent
};

}  // namespace byteps

#include "cc/codec/int8_kernels.h"

#include <algorithm>
#include <cstring>

#include "cc/codec/scale.h"
#include "cc/sum/sum.h"

namespace byteps::codec_internal {
namespace {

template <DecodeMode mode>
void DecodeBlock(float* target, const uint8_t* data, uint64_t elements) {
  const float scale = BFloat16ToFloat(LoadElement<BFloat16>(data));
  const uint8_t* quantized = data + kScaleBytes;
  for (uint64_t i = 0; i < elements; ++i) {
    Put<mode>(&target[i], static_cast<float>(static_cast<int8_t>(quantized[i])) * scale);
  }
}

void Encode(uint8_t* out, const float* values, uint64_t blocks, uint64_t block) {
  for (; blocks > 0; --blocks, out += kScaleBytes + block, values += block) {
    EncodeInt8Block(out, values, block);
  }
}

template <DecodeMode mode>
void Decode(float* target, const uint8_t* data, uint64_t blocks, uint64_t block) {
  for (; blocks > 0; --blocks, data += kScaleBytes + block, target += block) {
    DecodeBlock<mode>(target, data, block);
  }
}

}  // namespace

void EncodeInt8Block(uint8_t* out, const float* values, uint64_t elements) {
  const Scale scale = ScaleFor(LargestBits(values, elements), 1.0f / 127);
  StoreElement(out, scale.wire);
  out += kScaleBytes;
  if (scale.inverse == 0) {
    std::memset(out, 0, elements);
    return;
  }
  for (uint64_t i = 0; i < elements; ++i) {
    out[i] = static_cast<uint8_t>(std::clamp(RoundNearest(values[i] * scale.inverse), -127, 127));
  }
}

void StoreInt8Block(float* target, const uint8_t* data, uint64_t elements) {
  DecodeBlock<DecodeMode::kStore>(target, data, elements);
}

void AddInt8Block(float* target, const uint8_t* data, uint64_t elements) {
  DecodeBlock<DecodeMode::kAdd>(target, data, elements);
}

const Int8Kernels& ActiveInt8Kernels() {
  static constexpr Int8Kernels scalar = {"scalar", &Encode, &Decode<DecodeMode::kStore>,
                                         &Decode<DecodeMode::kAdd>};
  const char* name = ActiveSumKernels().name;
  for (const Int8Kernels* kernels : {Avx2Int8Kernels(), Avx512Int8Kernels()}) {
    if (kernels != nullptr && std::strcmp(kernels->name, name) == 0) return *kernels;
  }
  return scalar;
}

}  // namespace byteps::codec_internal

#include "cc/codec/cast_codec.h"

#include "cc/sum/sum.h"

namespace byteps {
namespace {

DType DTypeOf(CodecId id) {
  if (id == CodecId::kFloat16) return DType::kFloat16;
  return id == CodecId::kBFloat16 ? DType::kBFloat16 : DType::kFloat32;
}

}  // namespace

CastCodec::CastCodec(CodecId id) : BlockCodec(1), id_(id), dtype_(DTypeOf(id)) {}

std::string CastCodec::name() const {
  if (id_ == CodecId::kFloat16) return "fp16";
  return id_ == CodecId::kBFloat16 ? "bf16" : "raw";
}

void CastCodec::EncodeBlocks(const float* values, uint64_t elements, uint64_t, const CounterRandom&,
                             uint8_t* out) const {
  ActiveSumKernels().finish(dtype_, out, values, elements, 1);
}

void CastCodec::DecodeBlocks(const uint8_t* data, uint64_t elements, DecodeMode mode,
                             float* target) const {
  const SumKernels& kernels = ActiveSumKernels();
  (mode == DecodeMode::kAdd ? kernels.add : kernels.store)(dtype_, target, data, elements);
}

}  // namespace byteps

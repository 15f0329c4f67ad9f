#include "cc/codec/narrow.h"

#include <algorithm>
#include <cstring>

#include "cc/codec/cast_codec.h"

namespace byteps {
namespace {

// Elements at a time: what they become, there and back, stays in the first-level cache.
constexpr uint64_t kPiece = 2048;
// Of values that do not fit, the first few mostly show it.
constexpr uint64_t kFirstPiece = 64;

bool ComesBack(const BlockCodec& codec, const float* values, uint64_t elements) {
  uint8_t encoded[kPiece * 2];
  float decoded[kPiece];
  uint64_t count = kFirstPiece;
  for (uint64_t done = 0; done < elements; done += count, count = kPiece) {
    count = std::min(count, elements - done);
    codec.EncodeBlocks(values + done, count, 0, CounterRandom(0), encoded);
    codec.DecodeBlocks(encoded, count, DecodeMode::kStore, decoded);
    if (std::memcmp(values + done, decoded, count * sizeof(float)) != 0) return false;
  }
  return true;
}

}  // namespace

bool MayBeNarrow(const TensorDescription& tensor) {
  return tensor.codec.empty() && tensor.dtype == DType::kFloat32 &&
         tensor.kind == ExchangeKind::kSum;
}

const BlockCodec* NarrowFormOf(const float* values, uint64_t elements) {
  if (elements == 0) return nullptr;
  for (const CodecId id : {CodecId::kBFloat16, CodecId::kFloat16}) {
    const BlockCodec* const form = NarrowForm(id);
    if (ComesBack(*form, values, elements)) return form;
  }
  return nullptr;
}

const BlockCodec* NarrowForm(CodecId id) {
  static const CastCodec& bfloat16 = *new CastCodec(CodecId::kBFloat16);
  static const CastCodec& float16 = *new CastCodec(CodecId::kFloat16);
  if (id == CodecId::kBFloat16) return &bfloat16;
  return id == CodecId::kFloat16 ? &float16 : nullptr;
}

}  // namespace byteps

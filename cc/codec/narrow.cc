#include "cc/codec/narrow.h"

#include <algorithm>
#include <cstring>

#include "cc/codec/cast_codec.h"
#include "cc/codec/scale.h"

namespace byteps {
namespace {

// Elements at a time: what they become, there and back, stays in the first-level cache.
constexpr uint64_t kPiece = 2048;
// Of values that do not fit, the first few mostly show it.
constexpr uint64_t kFirstPiece = 64;

// Bfloat16 is the first half of a float32. Not NaN, of which a cast would change some.
bool IsBFloat16(const float* values, uint64_t elements) {
  uint32_t second_halves = 0;
  for (uint64_t i = 0; i < elements; ++i)
    second_halves |= codec_internal::BitCast<uint32_t>(values[i]) & 0xffff;
  return second_halves == 0 && codec_internal::LargestBits(values, elements) <= 0x7f800000;
}

bool IsFloat16(const float* values, uint64_t elements) {
  const BlockCodec& codec = *NarrowForm(CodecId::kFloat16);
  uint8_t encoded[kPiece * 2];
  float decoded[kPiece];
  codec.EncodeBlocks(values, elements, 0, CounterRandom(0), encoded);
  codec.DecodeBlocks(encoded, elements, DecodeMode::kStore, decoded);
  return std::memcmp(values, decoded, elements * sizeof(float)) == 0;
}

// Whether all pieces are; ends with the first that is not.
template <typename Test>
bool AreAll(const float* values, uint64_t elements, Test test) {
  uint64_t count = kFirstPiece;
  for (uint64_t done = 0; done < elements; done += count, count = kPiece) {
    count = std::min(count, elements - done);
    if (!test(values + done, count)) return false;
  }
  return true;
}

}  // namespace

bool MayBeNarrow(const TensorDescription& tensor) {
  const bool is_raw = tensor.codec.empty() || tensor.codec == kAutoCodec;
  return is_raw && tensor.dtype == DType::kFloat32 && tensor.kind == ExchangeKind::kSum;
}

const BlockCodec* NarrowFormOf(const float* values, uint64_t elements) {
  if (elements == 0) return nullptr;
  if (AreAll(values, elements, IsBFloat16)) return NarrowForm(CodecId::kBFloat16);
  if (AreAll(values, elements, IsFloat16)) return NarrowForm(CodecId::kFloat16);
  return nullptr;
}

const BlockCodec* NarrowForm(CodecId id) {
  static const CastCodec& bfloat16 = *new CastCodec(CodecId::kBFloat16);
  static const CastCodec& float16 = *new CastCodec(CodecId::kFloat16);
  if (id == CodecId::kBFloat16) return &bfloat16;
  return id == CodecId::kFloat16 ? &float16 : nullptr;
}

}  // namespace byteps

// The codecs of cc/codec as frames number them (wire/frame.h).
#pragma once

#include <cstdint>

namespace byteps {

// The values travel: append only.
enum class CodecId : uint8_t {
  kRaw = 0,
  kFloat16 = 1,
  kBFloat16 = 2,
  kInt8 = 3,
  kFloat8 = 4,
  kInt4 = 5,
  kOneBit = 6,
  kTopK = 7,
  kRandomK = 8,
  // 9 was the codec natural, which is no longer there.
  kDithering = 10,
  kThc = 11,
  kThcSum = 12,
};
inline constexpr CodecId kLastCodecId = CodecId::kThcSum;

}  // namespace byteps

// Codecs that send a share of a part's elements.
#ifndef TF_BYTEPS_CC_CODEC_RATIO_H_
#define TF_BYTEPS_CC_CODEC_RATIO_H_

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>

namespace byteps::codec_internal {

// How many of 1 or more elements are sent. 0 < ratio <= 1.
inline uint64_t CountOf(double ratio, uint64_t elements) {
  const double count = std::ceil(ratio * static_cast<double>(elements));
  return std::clamp<uint64_t>(static_cast<uint64_t>(count), 1, elements);
}

// The name of a codec with its options.
inline std::string NameWithRatio(const std::string& codec, bool feedback, double ratio) {
  char digits[32];  // the fewest that give the same number again
  const auto end = std::to_chars(std::begin(digits), std::end(digits), ratio).ptr;
  return codec + ":feedback=" + (feedback ? "1" : "0") + ",ratio=" + std::string(digits, end);
}

}  // namespace byteps::codec_internal

#endif  // TF_BYTEPS_CC_CODEC_RATIO_H_

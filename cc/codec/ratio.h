// Codecs that send a share of a part's elements.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <locale>
#include <sstream>
#include <string>

namespace byteps::codec_internal {

// How many of 1 or more elements are sent. 0 < ratio <= 1.
inline uint64_t CountOf(double ratio, uint64_t elements) {
  const double count = std::ceil(ratio * static_cast<double>(elements));
  return std::clamp<uint64_t>(static_cast<uint64_t>(count), 1, elements);
}

// Reads a number of a codec's options. By streams: GCC 10, which compiles the wheels, has neither
// from_chars nor to_chars for doubles. They ignore the process's locale here.
inline bool ParseRatio(const std::string& text, double* ratio) {
  std::istringstream stream(text);
  stream.imbue(std::locale::classic());
  stream >> std::noskipws >> *ratio;
  return stream && stream.peek() == std::istringstream::traits_type::eof();
}

// The fewest digits that give the same number again.
inline std::string TextOfRatio(double ratio) {
  std::string text;
  double read = -1;
  for (int digits = 1; digits <= std::numeric_limits<double>::max_digits10 && read != ratio;
       ++digits) {
    std::ostringstream stream;
    stream.imbue(std::locale::classic());
    stream.precision(digits);
    stream << ratio;
    text = stream.str();
    ParseRatio(text, &read);
  }
  return text;
}

// The name of a codec with its options.
inline std::string NameWithRatio(const std::string& codec, bool feedback, double ratio) {
  return codec + ":feedback=" + (feedback ? "1" : "0") + ",ratio=" + TextOfRatio(ratio);
}

}  // namespace byteps::codec_internal

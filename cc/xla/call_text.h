// Texts in the attributes of custom calls: in hexadecimal digits, as they may have quotes and the
// like, and with dots in between, such as "6a.6b" for "j" and "k".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace byteps {

inline std::string ToDigits(std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string digits;
  for (const unsigned char c : text) {
    digits += kDigits[c >> 4];
    digits += kDigits[c & 15];
  }
  return digits;
}

inline std::string FromDigits(std::string_view digits) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string text;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    text += static_cast<char>(digit(digits[i]) * 16 + digit(digits[i + 1]));
  return text;
}

// What is between dots.
inline std::vector<std::string_view> Split(std::string_view text) {
  std::vector<std::string_view> pieces;
  for (size_t dot = 0; dot != std::string_view::npos;) {
    dot = text.find('.');
    pieces.push_back(text.substr(0, dot));
    text.remove_prefix(dot == std::string_view::npos ? text.size() : dot + 1);
  }
  return pieces;
}

}  // namespace byteps

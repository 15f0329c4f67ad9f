#include "cc/base/json.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <limits>

namespace byteps {
namespace {

bool IsContinuation(char byte) { return (static_cast<uint8_t>(byte) & 0xC0) == 0x80; }

// How many bytes the character has that `text` begins with; 0 if they are no UTF-8 (RFC 3629).
size_t BytesOfCharacter(std::string_view text) {
  const auto first = static_cast<uint8_t>(text[0]);
  if (first < 0x80) return 1;
  const size_t bytes = first < 0xC2   ? 0
                       : first < 0xE0 ? 2
                       : first < 0xF0 ? 3
                       : first < 0xF5 ? 4
                                      : 0;
  if (bytes == 0 || text.size() < bytes) return 0;
  for (size_t i = 1; i < bytes; ++i)
    if (!IsContinuation(text[i])) return 0;
  // Too long for what they say, halves of a pair of UTF-16, and more than U+10FFFF.
  const auto second = static_cast<uint8_t>(text[1]);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F)) return 0;
  if ((first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) return 0;
  return bytes;
}

// Whether a byte of text is the same in JSON, and a character of its own.
bool IsPlain(char byte) {
  return static_cast<uint8_t>(byte) >= 0x20 && static_cast<uint8_t>(byte) < 0x80 && byte != '"' &&
         byte != '\\';
}

void AppendQuoted(std::string_view text, std::string* to) {
  *to += '"';
  while (!text.empty()) {
    const size_t plain = std::find_if_not(text.begin(), text.end(), IsPlain) - text.begin();
    *to += text.substr(0, plain);
    text.remove_prefix(plain);
    if (text.empty()) break;
    const size_t bytes = BytesOfCharacter(text);
    const char byte = text[0];
    if (bytes == 0) {
      *to += "\\ufffd";
    } else if (byte == '"' || byte == '\\') {
      *to += {'\\', byte};
    } else if (static_cast<uint8_t>(byte) < 0x20) {
      char escaped[8];
      snprintf(escaped, sizeof(escaped), "\\u%04x", byte);
      *to += escaped;
    } else {
      *to += text.substr(0, bytes);
    }
    text.remove_prefix(bytes == 0 ? 1 : bytes);
  }
  *to += '"';
}

}  // namespace

std::string JsonString(std::string_view text) {
  std::string quoted;
  AppendQuoted(text, &quoted);
  return quoted;
}

void JsonObject::Number(std::string_view name, int64_t value) {
  Name(name);
  char digits[std::numeric_limits<int64_t>::digits10 + 2];  // and the sign
  text_->append(digits, std::to_chars(digits, std::end(digits), value).ptr);
}

void JsonObject::Null(std::string_view name) {
  Name(name);
  *text_ += "null";
}

void JsonObject::String(std::string_view name, std::string_view value) {
  Name(name);
  AppendQuoted(value, text_);
}

JsonObject JsonObject::Object(std::string_view name) {
  Name(name);
  return JsonObject(text_);
}

void JsonObject::Name(std::string_view name) {
  if (!is_empty_) *text_ += ',';
  is_empty_ = false;
  *text_ += '"';
  *text_ += name;
  *text_ += "\":";
}

}  // namespace byteps

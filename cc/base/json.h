// Text as JSON has it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace byteps {

// In quotes, with control characters, quotes and backslashes escaped, so that it fits on a line.
// Bytes that are no UTF-8 become U+FFFD: names come from users and from other machines.
std::string JsonString(std::string_view text);

// Writes an object at the end of a text; it ends with this. Names are written as they are.
class JsonObject {
 public:
  explicit JsonObject(std::string* text) : text_(text) { *text_ += '{'; }
  ~JsonObject() { *text_ += '}'; }
  JsonObject(const JsonObject&) = delete;
  JsonObject& operator=(const JsonObject&) = delete;

  void Number(std::string_view name, int64_t value);
  void Null(std::string_view name);
  void String(std::string_view name, std::string_view value);
  // Must end before more is written to this one.
  JsonObject Object(std::string_view name);

 private:
  void Name(std::string_view name);

  std::string* const text_;
  bool is_empty_ = true;
};

}  // namespace byteps

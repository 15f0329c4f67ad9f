// The names of the two exchanges that are copies of one block of a table (docs/protocol.md, rule
// 38): they end in "/copy 0" and "/copy 1", and are equal otherwise.
#pragma once

#include <string>

namespace byteps {

// The name of the other copy; "" if `name` is not that of a copy.
inline std::string OtherCopyOf(const std::string& name) {
  static const std::string kEnd = "/copy ";
  if (name.size() <= kEnd.size() || name.compare(name.size() - 1 - kEnd.size(), kEnd.size(), kEnd))
    return "";
  std::string other = name;
  if (other.back() != '0' && other.back() != '1') return "";
  other.back() = other.back() == '0' ? '1' : '0';
  return other;
}

}  // namespace byteps

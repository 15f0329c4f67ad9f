// Text as JSON has it.
#ifndef TF_BYTEPS_CC_BASE_JSON_H_
#define TF_BYTEPS_CC_BASE_JSON_H_

#include <string>
#include <string_view>

namespace byteps {

// In quotes, with control characters, quotes and backslashes escaped, so that it fits on a line.
// Bytes that are no UTF-8 become U+FFFD: names come from users and from other machines.
std::string JsonString(std::string_view text);

}  // namespace byteps

#endif  // TF_BYTEPS_CC_BASE_JSON_H_

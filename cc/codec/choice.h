// What callers ask for: a codec, and when it begins.
#pragma once

#include <cstdint>
#include <string>

#include "cc/base/status.h"

namespace byteps {

struct CodecChoice {
  std::string codec;        // its full name, with all options; or kAutoCodec
  uint64_t start_step = 0;  // the rounds of a tensor before this one are raw

  // As ParseChoice takes it.
  std::string name() const;
};

// Parses what ParseCodec takes, with one more option that all codecs have, "start_step"; or
// kAutoCodec in a codec's place. INVALID_ARGUMENT as ParseCodec.
Status ParseChoice(const std::string& text, CodecChoice* choice);

}  // namespace byteps

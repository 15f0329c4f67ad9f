// How fast this machine's codecs are.
#pragma once

#include <cstdint>

namespace byteps {

// Bytes of float32 that one core encodes as int8 and decodes again in a second, from its cache.
// Measures for less than a millisecond. Any thread.
uint64_t Int8BytesPerSecond();

}  // namespace byteps

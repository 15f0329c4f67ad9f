// DeviceForm: what a device needs to know of a codec to encode parts as it does.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cc/base/codec_id.h"

namespace byteps {

// Blocks of float32 elements: a scale in front of each, as codec/int8_codec.h writes them, or what
// codec/thc_codec.h makes of them.
struct DeviceForm {
  CodecId codec = CodecId::kRaw;
  uint32_t block = 0;         // elements
  uint32_t element_bits = 0;  // of a whole block
  bool is_stochastic = false;
  uint64_t random_state = 0;  // CounterRandom::state() of the part, if stochastic
  // Of a sum of thc: how many workers' it is, and what it is divided by.
  uint32_t workers = 1;
  float divisor = 1;

  // Whether one launch may take parts of both. What is random differs from part to part.
  bool IsLike(const DeviceForm& other) const {
    return codec == other.codec && block == other.block && element_bits == other.element_bits &&
           is_stochastic == other.is_stochastic && workers == other.workers &&
           divisor == other.divisor;
  }

  // Of so many elements, which begin with a block.
  uint64_t Bytes(uint64_t elements) const {
    const uint64_t rest = elements % block;
    return elements / block * BlockBytes(block) + (rest > 0 ? BlockBytes(rest) : 0);
  }
  uint64_t BlockBytes(uint64_t elements) const {
    const uint64_t bytes = (elements * element_bits + 7) / 8;
    if (codec == CodecId::kThc) return elements == block ? bytes : elements;
    if (codec == CodecId::kThcSum) return elements == block ? bytes : 2 * elements;
    return 2 + bytes;
  }
};

// So many parts of one form are encoded or decoded at a time.
inline constexpr uint64_t kPartsTogether = 8;

// One outbound part: `elements` float32 numbers in a device's memory become `bytes` bytes.
// Raw parts are copied as they are.
struct DevicePart {
  const void* values = nullptr;
  uint64_t elements = 0;
  uint64_t bytes = 0;
  DeviceForm form;
};

// One inbound part: what is in the host's pinned memory becomes `elements` float32 numbers
// in a device's memory. Raw parts are copied as they are.
struct ArrivedPart {
  const void* from = nullptr;
  DeviceForm form;
  uint64_t elements = 0;
  void* to = nullptr;
};

}  // namespace byteps

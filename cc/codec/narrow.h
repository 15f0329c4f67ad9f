// Narrow contributions: float32 that fits in 16 bits without loss, as gradients of mixed precision
// do, which TensorFlow has cast up from bfloat16 or float16. A worker looks at the values, not at
// where they come from, so that it holds in eager, traced and compiled steps alike. Sums, and what
// comes back, stay float32: every bit is what it would be without.
#pragma once

#include <cstdint>

#include "cc/base/tensor_description.h"
#include "cc/codec/block_codec.h"

namespace byteps {

// Whether contributions to a tensor may be narrow: sums and averages of float32 with no codec of
// their own.
bool MayBeNarrow(const TensorDescription& tensor);

// bf16 or fp16, whichever gives every one of the values back with the same bits; null: neither
// does, or there are none. The first values that do not fit end the search. Lives for ever.
const BlockCodec* NarrowFormOf(const float* values, uint64_t elements);

// That of this number; null if it is none of the two. Lives for ever.
const BlockCodec* NarrowForm(CodecId id);

}  // namespace byteps

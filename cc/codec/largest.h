// The elements of the largest magnitude.
#pragma once

#include <cstdint>
#include <vector>

namespace byteps::codec_internal {

// The indices of the `count` largest magnitudes, ascending. Of equal ones those with the lower
// index. NaN is larger than infinity, which is larger than all else. 1 <= count <= elements.
std::vector<uint64_t> LargestMagnitudes(const float* values, uint64_t elements, uint64_t count);

}  // namespace byteps::codec_internal

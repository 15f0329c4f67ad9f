// PartId: which part of which cut of a tensor.
#pragma once

#include <cstdint>
#include <tuple>

namespace byteps {

using PartId = std::tuple<uint64_t, uint32_t, uint32_t>;  // key, variant and part

}  // namespace byteps

// PartId: which part of which cut of a tensor.
#ifndef TF_BYTEPS_CC_WORKER_STATE_PART_ID_H_
#define TF_BYTEPS_CC_WORKER_STATE_PART_ID_H_

#include <cstdint>
#include <tuple>

namespace byteps {

using PartId = std::tuple<uint64_t, uint32_t, uint32_t>;  // key, variant and part

}  // namespace byteps

#endif  // TF_BYTEPS_CC_WORKER_STATE_PART_ID_H_

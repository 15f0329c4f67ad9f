// The rows that several workers have sent, as the payload of one reply: num_workers int64, how many
// rows are each one's, then the rows in rank order. Nothing long is copied: a result is sent from
// where the contributions are.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/status.h"
#include "cc/server/buffer.h"
#include "cc/server/state/part_sum.h"

namespace byteps {

// What one worker has sent.
struct RowsOfWorker {
  int64_t count = 0;
  const uint8_t* data = nullptr;
  uint64_t bytes = 0;
  std::shared_ptr<const void> owner;  // keeps the bytes
};

// `rows`: by rank. `element_size`: of one element, in bytes. RESOURCE_EXHAUSTED without memory.
Status MakeRowsResult(const std::vector<RowsOfWorker>& rows, size_t element_size,
                      const AllocatedBytes& allocated, AggregationResult* result);

}  // namespace byteps

// The rows of a table that a worker has, cut into the blocks that servers add up, and their sums
// put together again.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/coded_rows.h"
#include "cc/base/mutex.h"
#include "cc/base/status.h"
#include "cc/tf/indexed_row.h"

namespace byteps {

// Of one block: what this worker sends, and what comes back.
struct RowBlock {
  std::vector<int64_t> indices;
  std::vector<int64_t> rows;  // where these are in the operation's input
  std::vector<uint8_t> sent;
  // The sum, as it comes. Any thread of the engine, until all exchanges have ended.
  std::unique_ptr<uint8_t[]> received;
  uint64_t received_bytes = 0;
};

// Owned by the engine's requests, whose memory it is, and by the operation until that ends.
struct RowBlocks {
  int64_t width = 0;
  uint64_t row_bytes = 0;
  std::vector<RowBlock> blocks;
  std::atomic<int> left{0};
  Mutex mutex;
  Status error BYTEPS_GUARDED_BY(mutex);  // the first one

  void Note(const Status& status) {
    MutexLock lock(mutex);
    if (error.ok()) error = status;
  }
  Status FirstError() {
    MutexLock lock(mutex);
    return error;
  }
};

// Workers that do not make the same exchange: nobody may ever send the other blocks.
inline bool IsDisagreement(const Status& status) {
  return status.code() == StatusCode::kFailedPrecondition ||
         status.code() == StatusCode::kInvalidArgument;
}

inline Status CheckRowIndices(const std::string& name, const int64_t* indices, int64_t count,
                              int64_t limit) {
  for (int64_t i = 0; i < count; ++i) {
    if (indices[i] < 0 || (limit >= 0 && indices[i] >= limit)) {
      return InvalidArgument("'" + name + "': index " + std::to_string(indices[i]) +
                             " is not a row of a table" +
                             (limit < 0 ? "" : " of " + std::to_string(limit) + " rows") +
                             "; check the ids that the embedding is called with");
    }
    if (i > 0 && indices[i] <= indices[i - 1]) {
      return InvalidArgument("'" + name + "': the indices must be ascending, but " +
                             std::to_string(indices[i]) + " comes after " +
                             std::to_string(indices[i - 1]));
    }
  }
  return OkStatus();
}

inline void EncodeRowBlocks(const int64_t* indices, const uint8_t* rows, int64_t count,
                            int32_t num_blocks, RowBlocks* all) {
  all->blocks.resize(num_blocks);
  for (int64_t i = 0; i < count; ++i) {
    RowBlock& block = all->blocks[BlockOfRow(indices[i], num_blocks)];
    block.indices.push_back(indices[i]);
    block.rows.push_back(i);
  }
  for (RowBlock& block : all->blocks) {
    block.sent = EncodeRowIndices(block.indices);
    block.sent.reserve(block.sent.size() + block.rows.size() * all->row_bytes);
    for (const int64_t row : block.rows) {
      const uint8_t* const begin = rows + row * all->row_bytes;
      block.sent.insert(block.sent.end(), begin, begin + all->row_bytes);
    }
    block.rows = {};
  }
}

// The rows of the sum, in ascending order of the indices.
inline Status DecodeRowBlocks(const std::string& name, RowBlocks* all,
                              std::vector<IndexedRow>* rows) {
  for (RowBlock& block : all->blocks) {
    uint64_t head_bytes = 0;
    const Status status = DecodeRowIndices(block.received.get(), block.received_bytes,
                                           all->row_bytes, &block.indices, &head_bytes);
    if (!status.ok()) {
      return Internal("'" + name + "': the sum of rows is damaged: " + status.message());
    }
    const uint8_t* row = block.received.get() + head_bytes;
    for (const int64_t index : block.indices) {
      rows->push_back({index, row});
      row += all->row_bytes;
    }
  }
  if (all->blocks.size() > 1) SortByIndex(rows);
  return OkStatus();
}

}  // namespace byteps

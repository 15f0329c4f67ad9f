#include "cc/server/rows_result.h"

#include <cstring>
#include <utility>

#include "cc/van/scattered_payload.h"

namespace byteps {
namespace {

// Rows of fewer bytes are copied next to each other: a frame of many short pieces costs more.
constexpr uint64_t kLeastOwnPiece = 64 * 1024;

bool IsCopied(const RowsOfWorker& rows) { return rows.bytes < kLeastOwnPiece; }

}  // namespace

Status MakeRowsResult(const std::vector<RowsOfWorker>& rows, size_t element_size,
                      const AllocatedBytes& allocated, AggregationResult* result) {
  const uint64_t head_bytes = rows.size() * sizeof(int64_t);
  uint64_t copied_bytes = head_bytes;
  for (const RowsOfWorker& each : rows) copied_bytes += IsCopied(each) ? each.bytes : 0;
  std::unique_ptr<Buffer> made;
  BYTEPS_RETURN_IF_ERROR(Buffer::New(copied_bytes, allocated, &made));
  const std::shared_ptr<Buffer> copies = std::move(made);
  auto payload = std::make_shared<ScatteredPayload>();
  uint8_t* begin = copies->data();  // of the copies that are no piece yet
  uint8_t* end = begin;
  for (const RowsOfWorker& each : rows) {
    std::memcpy(end, &each.count, sizeof(int64_t));
    end += sizeof(int64_t);
  }
  for (const RowsOfWorker& each : rows) {
    if (IsCopied(each)) {
      if (each.bytes > 0) std::memcpy(end, each.data, each.bytes);
      end += each.bytes;
      continue;
    }
    payload->Add(begin, end - begin, copies);
    begin = end;
    payload->Add(each.data, each.bytes, each.owner);
  }
  payload->Add(begin, end - begin, copies);
  result->element_count = (payload->bytes() - head_bytes) / element_size;
  result->payload_bytes = payload->bytes();
  result->scattered = payload.get();
  result->memory = std::move(payload);
  return OkStatus();
}

}  // namespace byteps

// How a copy of a block that is lost with its server gets its rows again (docs/protocol.md, rule
// 39).
//
// A copy that is filled begins with no row. What comes next is read from the other copy by a worker
// that has made n changes, and asks for the next one only afterwards: so it has exactly n, and so
// have the rows that are here. A change concerns the rows that are here. No change is kept.
#include <cstring>

#include "cc/server/kept_tables.h"
#include "cc/server/part_table.h"

namespace byteps {

bool PartTable::LacksRows() const {
  MutexLock lock(mutex_);
  return !changes_.is_whole() && !changes_.is_freed();
}

Status PartTable::TellState(int32_t rank, std::shared_ptr<Buffer>* answer) const {
  CopyState state = CopyState::kLost;
  if (changes_.is_freed())
    state = CopyState::kFreed;
  else if (rows_ != nullptr)
    state = changes_.is_whole() ? CopyState::kWhole : CopyState::kFilling;
  else if (!changes_.is_lost())
    state = CopyState::kNotMade;
  std::string bytes;
  const auto append = [&bytes](const auto& value) {
    bytes.append(reinterpret_cast<const char*>(&value), sizeof(value));
  };
  append(options_.server_rank);
  append(static_cast<uint32_t>(state));
  append(changes_.made());
  append(changes_.begun());
  append(rows_ == nullptr ? uint64_t{0} : rows_->filled());
  if (rows_ != nullptr) bytes += EncodeTableSpec(rows_->spec());
  BYTEPS_RETURN_IF_ERROR(NewAnswer(rank, bytes.size(), answer));
  std::memcpy((*answer)->data() + options_.num_workers * sizeof(int64_t), bytes.data(),
              bytes.size());
  return OkStatus();
}

Status PartTable::Copy(const Newest& worker, std::shared_ptr<Buffer>* answer) const {
  if (rows_ == nullptr || !changes_.MayCopy(worker.request.number)) return Lost();
  uint64_t begin = 0, most_bytes = 0;
  const Status checked = DecodeTableCopy(worker.request, rows_->spec(), &begin, &most_bytes);
  if (!checked.ok()) return Refused(worker, checked);
  std::vector<int64_t> indices;
  const auto next = static_cast<int64_t>(rows_->FindCopied(begin, most_bytes, &indices));
  const auto count = static_cast<int64_t>(indices.size());
  const uint64_t index_bytes = count * sizeof(int64_t);
  const uint64_t bytes = 2 * sizeof(int64_t) + index_bytes + count * rows_->spec().RowBytes();
  BYTEPS_RETURN_IF_ERROR(NewAnswer(worker.header.worker, bytes, answer));
  uint8_t* out = (*answer)->data() + options_.num_workers * sizeof(int64_t);
  std::memcpy(out, &next, sizeof(next));
  std::memcpy(out + sizeof(next), &count, sizeof(count));
  out += 2 * sizeof(int64_t);
  if (count > 0) std::memcpy(out, indices.data(), index_bytes);
  rows_->CopyRows(indices, out + index_bytes);
  return OkStatus();
}

Status PartTable::Refill(const Newest& worker) {
  if (!changes_.is_lost()) {
    return FailedPrecondition(Title() + ": " + WorkerName(worker.header.worker) +
                              " fills a copy that is not lost");
  }
  TableSpec spec;
  const Status decoded = DecodeTableSpec(worker.request, &spec);
  if (!decoded.ok()) return Refused(worker, decoded);
  if (options_.kept != nullptr) options_.kept->Drop(spec);
  BYTEPS_RETURN_IF_ERROR(
      TableRows::New(spec, options_.kept != nullptr, options_.memory.allocated, &rows_));
  rows_->BeginFilling();
  changes_.Refill(worker.request.number);
  return OkStatus();
}

Status PartTable::Fill(const Newest& worker) {
  if (rows_ == nullptr || !changes_.MayFill(worker.request.number)) return Lost();
  TableFill fill;
  const Status checked = DecodeTableFill(worker.request, rows_->spec(), &fill);
  if (!checked.ok()) return Refused(worker, checked);
  if (fill.begin != rows_->filled()) {
    return FailedPrecondition(Title() + ": " + WorkerName(worker.header.worker) +
                              " fills in rows from " + std::to_string(fill.begin) +
                              " on; those from " + std::to_string(rows_->filled()) +
                              " on are next");
  }
  rows_->Fill(fill, worker.request.indices);
  if (rows_->filled() == rows_->spec().rows) changes_.EndFilling();
  return OkStatus();
}

}  // namespace byteps

#include "cc/server/table_rows.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "cc/server/free_memory.h"
#include "cc/server/row_slots.h"
#include "cc/server/state/initial_numbers.h"
#include "cc/server/state/row_updates.h"

namespace byteps {
namespace {

// Of all tables of this process: memory that they may yet take.
std::atomic<uint64_t> promised_bytes{0};

}  // namespace

Status TableRows::New(const TableSpec& spec, bool goes_back, const AllocatedBytes& allocated,
                      std::unique_ptr<TableRows>* rows) {
  const uint64_t kept = goes_back ? RowHistory::MostBytes(spec.rows, spec.RowBytes()) : 0;
  const uint64_t bytes = spec.ByteCount() + kept, promised = promised_bytes;
  const uint64_t free = FreeMemory();
  if (bytes > free || promised > free - bytes) {
    return ResourceExhausted(
        "the table \"" + spec.name + "\" needs " + std::to_string(bytes) +
        " bytes on this server (" + spec.ToString() +
        (goes_back ? ", and rows as they were at the last two commits" : "") + "), which has " +
        std::to_string(free) + " bytes free, and other tables may yet need " +
        std::to_string(promised) +
        " of them: use more servers, servers with more memory, or a smaller table");
  }
  std::unique_ptr<Buffer> memory;
  BYTEPS_RETURN_IF_ERROR(Buffer::New(spec.ByteCount(), allocated, &memory));
  rows->reset(new TableRows(spec, bytes, allocated, std::move(memory)));
  return OkStatus();
}

TableRows::TableRows(const TableSpec& spec, uint64_t most_bytes, const AllocatedBytes& allocated,
                     std::unique_ptr<Buffer> memory)
    : spec_(spec),
      most_bytes_(most_bytes),
      allocated_(allocated),
      memory_(std::move(memory)),
      is_made_(spec.rows),
      filled_(spec.rows) {
  CountBytes();
}

TableRows::~TableRows() {
  *allocated_ -= kept_bytes_;
  promised_bytes -= promised_bytes_;
}

// After rows have been made, or kept or forgotten by history_. That has more than was promised if a
// worker goes back further than it need.
void TableRows::CountBytes() {
  const uint64_t kept = history_.bytes();
  const uint64_t promised = most_bytes_ - std::min(most_bytes_, made_bytes_ + kept);
  *allocated_ += kept - kept_bytes_;
  promised_bytes += promised - promised_bytes_;
  kept_bytes_ = kept;
  promised_bytes_ = promised;
}

void TableRows::CountAmong(const AllocatedBytes& allocated) {
  *allocated_ -= kept_bytes_;
  *allocated += kept_bytes_;
  allocated_ = allocated;
  memory_->CountAmong(allocated);
}

void TableRows::BeginFilling() {
  filled_ = 0;
  history_.Clear();
  CountBytes();
}

void TableRows::Forget(uint64_t least_number) {
  history_.Forget(least_number);
  CountBytes();
}

template <typename T>
T* TableRows::RowAt(int64_t index) const {
  return reinterpret_cast<T*>(memory_->data() + index * spec_.RowBytes());
}

template <typename T>
void TableRows::Make(int64_t index, T* row) const {
  const uint64_t number = spec_.RowOf(index);
  for (uint64_t i = 0; i < spec_.width; ++i)
    row[i] = static_cast<T>(InitialNumber(spec_, number, i));
  std::fill(row + spec_.width, row + spec_.RowNumbers(), T{0});
  if (spec_.rule.NumStates() > 0)
    std::fill_n(row + spec_.SlotBegin(1), spec_.SlotWidth(1),
                static_cast<T>(spec_.rule.first_state));
}

template <typename T>
T* TableRows::Changeable(int64_t index) {
  T* const row = RowAt<T>(index);
  const auto* const bytes = reinterpret_cast<const uint8_t*>(row);
  history_.Note(index, is_made_[index] ? bytes : nullptr, spec_.RowBytes());
  if (is_made_[index]) return row;
  Make(index, row);
  NoteMade(index);
  return row;
}

void TableRows::NoteMade(int64_t index) {
  is_made_[index] = true;
  made_bytes_ += spec_.RowBytes();
}

bool TableRows::GoBack(const TablePoint& point) {
  const uint64_t row_bytes = spec_.RowBytes();
  const bool is_back = history_.GoBack(point, [&](int64_t index, const uint8_t* bytes) {
    if (bytes != nullptr) {
      std::memcpy(memory_->data() + index * row_bytes, bytes, row_bytes);
    } else if (is_made_[index]) {
      is_made_[index] = false;
      made_bytes_ -= row_bytes;
    }
  });
  CountBytes();
  return is_back;
}

uint64_t TableRows::FindCopied(uint64_t begin, uint64_t most_bytes,
                               std::vector<int64_t>* indices) const {
  const uint64_t most = std::max<uint64_t>(1, most_bytes / spec_.RowBytes());
  for (uint64_t index = begin; index < spec_.rows; ++index) {
    if (!is_made_[index]) continue;
    if (indices->size() == most) return index;
    indices->push_back(static_cast<int64_t>(index));
  }
  return spec_.rows;
}

void TableRows::CopyRows(const std::vector<int64_t>& indices, uint8_t* out) const {
  for (const int64_t index : indices) {
    std::memcpy(out, memory_->data() + index * spec_.RowBytes(), spec_.RowBytes());
    out += spec_.RowBytes();
  }
}

void TableRows::Fill(const TableFill& fill, const std::vector<int64_t>& indices) {
  const uint8_t* next = fill.rows;
  for (const int64_t index : indices) {
    std::memcpy(memory_->data() + index * spec_.RowBytes(), next, spec_.RowBytes());
    NoteMade(index);
    next += spec_.RowBytes();
  }
  filled_ = fill.next;
  CountBytes();
}

uint64_t TableRows::ReadBytes(const TableRequest& request) const {
  return request.indices.size() * spec_.SlotWidth(request.slot) * DTypeSize(spec_.dtype);
}

template <typename T>
void TableRows::ReadAs(const TableRequest& request, T* out) const {
  const uint64_t begin = spec_.SlotBegin(request.slot), width = spec_.SlotWidth(request.slot);
  std::vector<T> made(spec_.RowNumbers());
  for (const int64_t index : request.indices) {
    const T* row = RowAt<T>(index);
    if (!is_made_[index]) {
      Make(index, made.data());
      row = made.data();
    }
    std::memcpy(out, row + begin, width * sizeof(T));
    out += width;
  }
}

void TableRows::Read(const TableRequest& request, uint8_t* out) const {
  if (spec_.dtype == DType::kFloat32)
    ReadAs(request, reinterpret_cast<float*>(out));
  else
    ReadAs(request, reinterpret_cast<double*>(out));
}

template <typename T>
Status TableRows::UpdateAs(const std::vector<TableRequest>& requests) {
  const uint64_t width = spec_.width;
  RowSlots slots;
  std::vector<T> sums;
  std::vector<T> gradient(width);
  for (size_t rank = 0; rank < requests.size(); ++rank) {
    const uint8_t* next = requests[rank].values;
    for (const int64_t index : requests[rank].indices) {
      std::memcpy(gradient.data(), next, width * sizeof(T));  // it may not be aligned
      next += width * sizeof(T);
      const size_t at = slots.SlotOf(index) * width;
      if (at == sums.size()) sums.resize(at + width);
      for (uint64_t i = 0; i < width; ++i) sums[at + i] += gradient[i];
    }
  }
  for (size_t slot = 0; slot < slots.indices().size(); ++slot) {
    for (uint64_t i = 0; i < width; ++i) {
      if (std::isfinite(sums[slot * width + i])) continue;
      return InvalidArgument(
          "row " + std::to_string(spec_.RowOf(slots.indices()[slot])) + " of the table \"" +
          spec_.name +
          "\" has a gradient that is NaN or infinite; no row has been updated: look for NaN in the "
          "inputs and targets of this step, or train with a lower learning rate");
    }
  }
  const T rate = static_cast<T>(requests[0].rate);
  const RowUpdate<T> update = RowUpdateOf<T>(spec_.rule.kind);
  for (size_t slot = 0; slot < slots.indices().size(); ++slot) {
    const int64_t index = slots.indices()[slot];
    if (IsHere(index)) update(spec_.rule, rate, &sums[slot * width], width, Changeable<T>(index));
  }
  return OkStatus();
}

Status TableRows::Update(const std::vector<TableRequest>& requests) {
  const Status checked = spec_.rule.CheckRate(requests[0].rate);
  if (!checked.ok())
    return Status(checked.code(), "the table \"" + spec_.name + "\": " + checked.message());
  const Status updated =
      spec_.dtype == DType::kFloat32 ? UpdateAs<float>(requests) : UpdateAs<double>(requests);
  CountBytes();
  return updated;
}

template <typename T>
void TableRows::WriteAs(const TableRequest& request) {
  const uint64_t begin = spec_.SlotBegin(request.slot), width = spec_.SlotWidth(request.slot);
  const uint8_t* next = request.values;
  for (const int64_t index : request.indices) {
    if (IsHere(index)) std::memcpy(Changeable<T>(index) + begin, next, width * sizeof(T));
    next += width * sizeof(T);
  }
}

void TableRows::Write(const TableRequest& request) {
  if (spec_.dtype == DType::kFloat32)
    WriteAs<float>(request);
  else
    WriteAs<double>(request);
  CountBytes();
}

}  // namespace byteps

// Rows of a table: a contribution is some of them with their indices (base/coded_rows.h), other
// ones from each worker. The result is all rows that some worker has sent, in ascending order of
// their indices, in the same form; rows with one index are added up.
//
// They are added in rank order, so that all orders of arrival give the same bits: a contribution
// that is complete waits until those of lower ranks are in. A row costs one look into a hash table
// and one addition, whatever the number of workers.
#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "cc/base/coded_rows.h"
#include "cc/server/aggregation.h"
#include "cc/server/row_slots.h"
#include "cc/server/whole_sink.h"
#include "cc/sum/sum.h"

namespace byteps {
namespace {

class RowSum : public Aggregation {
 public:
  RowSum(const TensorDescription& tensor, const Participants& participants,
         const AggregationMemory& memory)
      : dtype_(tensor.dtype),
        width_(tensor.ElementCount()),
        row_bytes_(tensor.ByteCount()),
        divisor_(tensor.average ? participants.num_workers : 1),
        members_(participants.members),
        allocated_(memory.allocated),
        contributions_(participants.num_workers) {}

  Status Begin(int32_t worker, const IncomingPayload& payload,
               std::shared_ptr<PayloadSink>* sink) override {
    return NewWholeSink(payload.bytes, allocated_,
                        &contributions_[members_.PlaceOf(worker)].payload, sink);
  }

  // The header has said how many bytes there are; what the indices are is known only now.
  Status End(int32_t worker) override {
    Contribution& contribution = contributions_[members_.PlaceOf(worker)];
    Buffer& payload = *contribution.payload;
    BYTEPS_RETURN_IF_ERROR(DecodeRowIndices(payload.data(), payload.bytes(), row_bytes_,
                                            &contribution.indices, &contribution.head_bytes));
    contribution.is_complete = true;
    while (added_ < contributions_.size() && contributions_[added_].is_complete)
      BYTEPS_RETURN_IF_ERROR(Add(&contributions_[added_++]));
    return OkStatus();
  }

  bool IsComplete(int32_t contributions) const override {
    return contributions == static_cast<int32_t>(contributions_.size());
  }

  Status Finish(AggregationResult* result) override {
    // Those behind one who has joined have waited for it.
    for (; added_ < contributions_.size(); ++added_) {
      if (contributions_[added_].is_complete) BYTEPS_RETURN_IF_ERROR(Add(&contributions_[added_]));
    }
    std::vector<std::pair<int64_t, const uint8_t*>> rows;
    rows.reserve(slots_.indices().size());
    for (size_t slot = 0; slot < sums_.size(); ++slot)
      rows.emplace_back(slots_.indices()[slot], sums_[slot]);
    std::sort(rows.begin(), rows.end());
    std::vector<int64_t> indices;
    indices.reserve(rows.size());
    for (const auto& [index, sum] : rows) indices.push_back(index);
    const std::vector<uint8_t> head = EncodeRowIndices(indices);
    std::unique_ptr<Buffer> made;
    BYTEPS_RETURN_IF_ERROR(Buffer::New(head.size() + rows.size() * row_bytes_, allocated_, &made));
    std::memcpy(made->data(), head.data(), head.size());
    uint8_t* out = made->data() + head.size();
    for (const auto& [index, sum] : rows) {
      ActiveSumKernels().finish(dtype_, out, sum, width_, divisor_);
      out += row_bytes_;
    }
    result->element_count = rows.size() * width_;
    result->payload_bytes = made->bytes();
    result->payload = made->data();
    result->memory = std::shared_ptr<Buffer>(std::move(made));
    Reset();
    return OkStatus();
  }

  void Reset() override {
    contributions_.assign(contributions_.size(), Contribution());
    added_ = 0;
    slots_.Clear();
    sums_.clear();
    wide_rows_.clear();
  }

 private:
  struct Contribution {
    std::shared_ptr<Buffer> payload;
    std::vector<int64_t> indices;
    uint64_t head_bytes = 0;
    bool is_complete = false;
  };

  Status Add(Contribution* contribution) {
    const size_t before = sums_.size();
    std::vector<uint32_t> slots;
    slots.reserve(contribution->indices.size());
    for (const int64_t index : contribution->indices) slots.push_back(slots_.SlotOf(index));
    uint8_t* first_new = nullptr;
    const size_t num_new = slots_.indices().size() - before;
    BYTEPS_RETURN_IF_ERROR(AllocateWideRows(num_new, &first_new));
    uint8_t* row = contribution->payload->data() + contribution->head_bytes;
    for (const uint32_t slot : slots) {
      if (slot < before)
        ActiveSumKernels().add(dtype_, sums_[slot], row, width_);
      else
        sums_.push_back(NewSum(row, first_new, slot - before));
      row += row_bytes_;
    }
    contribution->indices = {};
    if (num_new == 0 || IsWide()) contribution->payload = nullptr;  // all of it is in the sums
    return OkStatus();
  }

  // A row that is the first of its index becomes the sum, where it has come; 16-bit floats are
  // added up in float32, elsewhere.
  uint8_t* NewSum(uint8_t* row, uint8_t* wide_rows, size_t number) const {
    if (!IsWide()) return row;
    uint8_t* const sum = wide_rows + number * width_ * DTypeSize(AccumulatorDType(dtype_));
    ActiveSumKernels().store(dtype_, sum, row, width_);
    return sum;
  }

  Status AllocateWideRows(size_t count, uint8_t** rows) {
    if (!IsWide() || count == 0) return OkStatus();
    std::unique_ptr<Buffer> made;
    const uint64_t bytes = count * width_ * DTypeSize(AccumulatorDType(dtype_));
    BYTEPS_RETURN_IF_ERROR(Buffer::New(bytes, allocated_, &made));
    *rows = made->data();
    wide_rows_.push_back(std::move(made));
    return OkStatus();
  }

  bool IsWide() const { return AccumulatorDType(dtype_) != dtype_; }

  const DType dtype_;
  const uint64_t width_;
  const uint64_t row_bytes_;
  const int32_t divisor_;
  const Members members_;
  const AllocatedBytes allocated_;
  std::vector<Contribution> contributions_;  // by place among them
  size_t added_ = 0;                         // those of so many places are in the sums
  RowSlots slots_;
  std::vector<uint8_t*> sums_;  // by slot; of AccumulatorDType
  std::vector<std::unique_ptr<Buffer>> wide_rows_;
};

}  // namespace

std::unique_ptr<Aggregation> NewRowSum(const TensorDescription& tensor,
                                       const Participants& participants,
                                       const AggregationMemory& memory) {
  return std::make_unique<RowSum>(tensor, participants, memory);
}

}  // namespace byteps

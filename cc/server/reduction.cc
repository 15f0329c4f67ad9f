// Sum, average, minimum and maximum.
#include <algorithm>

#include "cc/server/aggregation.h"
#include "cc/sum/sum.h"

namespace byteps {
namespace {

class Reduction : public Aggregation {
 public:
  Reduction(const TensorDescription& tensor, uint64_t element_count, int32_t num_workers,
            const HeldBytes& held)
      : dtype_(tensor.dtype),
        kind_(tensor.kind),
        element_count_(element_count),
        num_workers_(num_workers),
        divisor_(tensor.average ? num_workers : 1),
        accumulator_size_(DTypeSize(AccumulatorDType(dtype_))),
        held_(held),
        results_(BufferPool::New(element_count * DTypeSize(dtype_), held)) {}

  Status Begin(int32_t, uint64_t, uint64_t, std::shared_ptr<Buffer>*) override {
    return accumulator_ == nullptr ? AllocateAccumulator() : OkStatus();
  }

  // Whoever comes first to a place stores, the others combine: nothing needs to be set to zero
  // before.
  void Add(uint64_t offset, const uint8_t* data, size_t bytes) override {
    const size_t wire_size = DTypeSize(dtype_);
    const uint64_t begin = offset / wire_size, end = begin + bytes / wire_size;
    uint8_t* const place = accumulator_->data() + begin * accumulator_size_;
    const uint64_t combined = std::min(end, stored_) - begin;
    Combine(place, data, combined);
    if (begin + combined == end) return;
    ActiveSumKernels().store(dtype_, place + combined * accumulator_size_,
                             data + combined * wire_size, end - begin - combined);
    stored_ = end;
  }

  bool IsComplete(int32_t contributions) const override { return contributions == num_workers_; }

  Status Finish(AggregationResult* result) override {
    BYTEPS_RETURN_IF_ERROR(accumulator_ == nullptr ? AllocateAccumulator() : OkStatus());
    stored_ = 0;
    std::shared_ptr<Buffer> target = accumulator_;
    if (SumsInPlace()) {
      accumulator_ = nullptr;  // it is the result now; the next round takes the other buffer
    } else {
      BYTEPS_RETURN_IF_ERROR(results_->Acquire(&target));
    }
    const uint8_t* sum = SumsInPlace() ? target->data() : accumulator_->data();
    ActiveSumKernels().finish(dtype_, target->data(), sum, element_count_, divisor_);
    result->element_count = element_count_;
    result->payload_bytes = element_count_ * DTypeSize(dtype_);
    result->buffer = std::move(target);
    return OkStatus();
  }

  void Reset() override {
    stored_ = 0;
    if (SumsInPlace()) accumulator_ = nullptr;
  }

 private:
  bool SumsInPlace() const { return AccumulatorDType(dtype_) == dtype_; }

  Status AllocateAccumulator() {
    if (SumsInPlace()) return results_->Acquire(&accumulator_);
    // A 16-bit type is summed in a buffer of its own, which is kept from round to round and never
    // sent.
    std::unique_ptr<Buffer> buffer;
    BYTEPS_RETURN_IF_ERROR(Buffer::New(element_count_ * accumulator_size_, held_, &buffer));
    accumulator_ = std::move(buffer);
    return OkStatus();
  }

  void Combine(uint8_t* place, const uint8_t* data, size_t count) const {
    const SumKernels& kernels = ActiveSumKernels();
    const auto combine = kind_ == ExchangeKind::kMin   ? kernels.min
                         : kind_ == ExchangeKind::kMax ? kernels.max
                                                       : kernels.add;
    combine(dtype_, place, data, count);
  }

  const DType dtype_;
  const ExchangeKind kind_;
  const uint64_t element_count_;
  const int32_t num_workers_;
  const double divisor_;
  const size_t accumulator_size_;
  const HeldBytes held_;
  const std::shared_ptr<BufferPool> results_;
  std::shared_ptr<Buffer> accumulator_;
  uint64_t stored_ = 0;  // the elements below hold a value of this round
};

}  // namespace

std::unique_ptr<Aggregation> NewReduction(const TensorDescription& tensor, uint64_t element_count,
                                          int32_t num_workers, const HeldBytes& held) {
  return std::make_unique<Reduction>(tensor, element_count, num_workers, held);
}

}  // namespace byteps

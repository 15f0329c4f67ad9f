// RoundArithmetic: the sums of one part's rounds, in the memory of a service
// (server/aggregation.h), and their compressed form.
#pragma once

#include <cstdint>
#include <memory>

#include "cc/server/aggregation.h"
#include "cc/server/served_part.h"
#include "cc/server/state/part_sum.h"

namespace byteps {

// Not thread-safe: the part's mutex guards every call.
class RoundArithmetic : public PartSum {
 public:
  // `options` outlives it.
  explicit RoundArithmetic(const ServedPart::Options& options) : options_(options) {}

  Status Begin(const Push& push, Incoming* incoming) override;
  Status End(int32_t worker) override { return aggregation_->End(worker); }
  bool IsComplete(int32_t contributions) const override {
    return aggregation_->IsComplete(contributions);
  }
  Status Finish(uint64_t round, AggregationResult* result) override;
  bool SendsResultTo(int32_t worker) const override { return aggregation_->SendsResultTo(worker); }
  void Reset() override {
    if (aggregation_ != nullptr) aggregation_->Reset();
  }
  void Release() override;

 private:
  void Prepare(const TableEntry* entry);
  Status Encode(uint64_t round, AggregationResult* result) const;

  const ServedPart::Options& options_;
  const TableEntry* entry_ = nullptr;  // the variant that the aggregation is of
  std::unique_ptr<Aggregation> aggregation_;
  std::shared_ptr<BufferPool> encoded_sums_;  // null: they are sent as they are
};

}  // namespace byteps

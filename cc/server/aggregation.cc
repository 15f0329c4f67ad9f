#include "cc/server/aggregation.h"

namespace byteps {

std::unique_ptr<Aggregation> NewAggregation(const TensorDescription& tensor, uint64_t element_count,
                                            int32_t num_workers, const AggregationMemory& memory) {
  switch (tensor.kind) {
    case ExchangeKind::kBroadcast:
      return NewBroadcast(tensor, element_count, num_workers, memory);
    case ExchangeKind::kGather:
      return NewGather(tensor, num_workers, memory);
    case ExchangeKind::kSum:
    case ExchangeKind::kMin:
    case ExchangeKind::kMax:
      break;
  }
  return NewReduction(tensor, element_count, num_workers, memory);
}

}  // namespace byteps

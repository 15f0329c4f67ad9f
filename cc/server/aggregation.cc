#include "cc/server/aggregation.h"

namespace byteps {

std::unique_ptr<Aggregation> NewAggregation(const TensorDescription& tensor, uint64_t element_count,
                                            const Participants& participants,
                                            const AggregationMemory& memory) {
  switch (tensor.kind) {
    case ExchangeKind::kBroadcast: return NewBroadcast(tensor, element_count, participants, memory);
    case ExchangeKind::kGather: return NewGather(tensor, participants, memory);
    case ExchangeKind::kAllToAll: return NewAllToAll(tensor, participants, memory);
    case ExchangeKind::kRowSum: return NewRowSum(tensor, participants, memory);
    case ExchangeKind::kSum:
    case ExchangeKind::kMin:
    case ExchangeKind::kMax:
    case ExchangeKind::kProduct:
    case ExchangeKind::kStore:  // have no aggregation: server/part_store.h, server/part_table.h
    case ExchangeKind::kTable: break;
  }
  if (tensor.backup_workers > 0)
    return NewBackupAverage(tensor, element_count, participants, memory);
  return NewReduction(tensor, element_count, participants, memory);
}

}  // namespace byteps

#include "cc/staging/state/launches.h"

#include <string>

namespace byteps {

Status Launches::Next(const LaunchEntry& entry, const TensorPointer& tensor, Launch* launch) {
  if (entry.kind == LaunchEntry::Kind::kFail) {
    launch->together = TakeTogether();
    // What has failed may have ended here before, or not begun.
    if (tensor == nullptr) return OkStatus();
    launch->kind = Launch::Kind::kFail;
    const ExchangeRequest& gpu = tensor->gpu;
    const std::string rows = gpu.tensor.kind == ExchangeKind::kGather
                                 ? ", with " + std::to_string(gpu.gather_rows) + " rows"
                                 : "";
    launch->reason =
        Status(entry.reason.code(), tensor->Name() + ": " + entry.reason.message() +
                                        "; here it is " + gpu.tensor.ToString() + rows);
    return OkStatus();
  }
  if (tensor == nullptr) return Internal(entry.ToString() + ": it is not ready here");
  if (entry.part >= tensor->part_count())
    return Internal(entry.ToString() + ": it has no such part here");
  switch (entry.kind) {
    case LaunchEntry::Kind::kReduce: launch->kind = Launch::Kind::kReduce; break;
    case LaunchEntry::Kind::kReduceForAll: launch->kind = Launch::Kind::kReduceForAll; break;
    case LaunchEntry::Kind::kBroadcast: launch->kind = Launch::Kind::kBroadcast; break;
    case LaunchEntry::Kind::kExchange: {
      const ExchangeKind kind = tensor->gpu.tensor.kind;
      if (kind != ExchangeKind::kGather && kind != ExchangeKind::kBroadcast) {
        together_.push_back(tensor);
        break;
      }
      launch->together = TakeTogether();
      launch->kind =
          kind == ExchangeKind::kGather ? Launch::Kind::kGather : Launch::Kind::kExchange;
      break;
    }
    case LaunchEntry::Kind::kFail:
    case LaunchEntry::Kind::kEnd: break;
  }
  return OkStatus();
}

}  // namespace byteps

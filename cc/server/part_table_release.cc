// How a block of a table is freed (docs/protocol.md, rule 41): when no worker asks for anything of
// it any more.
#include "cc/server/part_table.h"

namespace byteps {

void PartTable::Release(int32_t rank) {
  changes_.Release(rank);
  NoteDeparted();
}

// Who has left asks for nothing any more either. But all leave an epoch of an elastic job, and go
// on with the rows that are kept.
void PartTable::NoteDeparted() {
  if (options_.kept == nullptr) {
    options_.membership->Look([&](const Departed* departed) BYTEPS_NO_THREAD_SAFETY_ANALYSIS {
      if (departed == nullptr) return;
      for (const auto& [rank, reason] : departed->workers) {
        if (reason.ok()) changes_.Release(rank);
      }
    });
  }
  if (changes_.is_freed()) rows_ = nullptr;
}

Status PartTable::Released() const {
  return FailedPrecondition(
      Title() + ": " + WorkerName(changes_.released_by()) +
      " has released the table, and all workers change a table together: keep its layer on all "
      "workers until all have trained");
}

}  // namespace byteps

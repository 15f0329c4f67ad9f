// KeptResults: results that this worker keeps in case that a server is lost (protocol rule 15). The
// last one of each name, and the last two of a quorum, may have reached this worker only. They are
// kept until all workers are known to have them.
#pragma once

#include <cstdint>

#include "cc/worker/state/effects.h"
#include "cc/worker/state/key_table.h"
#include "cc/worker/state/paths.h"

namespace byteps {

// Not thread-safe.
class KeptResults {
 public:
  // All of them outlive it.
  KeptResults(KeyTable* keys, ServerLinks* servers) : keys_(keys), servers_(servers) {}

  // What is used once, such as initial values, has no later reply that says who has it. All who
  // keep it, other workers and servers, learn that they need not.
  void ReportResults(Effects* effects);
  // The coordinator says that all workers have these.
  void OnResultProgress(const ResultProgress& all_have, Effects* effects);
  // All workers have the results of all rounds below the reply's watermark.
  void DropResults(KeyTable::Key* key, int32_t server, const FrameHeader& reply, Effects* effects);

 private:
  KeyTable* const keys_;
  ServerLinks* const servers_;
};

}  // namespace byteps

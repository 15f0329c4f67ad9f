// Launches: what each entry of a host's log (gpu/launch_log.h) has this rank launch. All ranks get
// the same slices, so that they launch the same together.
#pragma once

#include <utility>
#include <vector>

#include "cc/base/status.h"
#include "cc/gpu/launch_log.h"
#include "cc/staging/state/staged_tensor.h"

namespace byteps {

struct Launch {
  enum class Kind {
    kNothing,
    kReduce,        // of the entry's part
    kReduceForAll,  // the same; the result comes to memory that all ranks share
    kBroadcast,     // of the entry's part
    kExchange,      // one collective gives all ranks the whole tensor's result
    kGather,        // of the entry's rows
    kFail,          // the tensor, for `reason`
  };
  // One collective, which begins before what `kind` says.
  std::vector<TensorPointer> together;
  Kind kind = Kind::kNothing;
  Status reason;
};

// Not thread-safe.
class Launches {
 public:
  // `tensor`: what the entry is about; null if that is not in flight here. INTERNAL if this rank
  // cannot do what all others do.
  Status Next(const LaunchEntry& entry, const TensorPointer& tensor, Launch* launch);
  // Exchanges that have come since the last call, for one collective.
  std::vector<TensorPointer> TakeTogether() { return std::exchange(together_, {}); }

 private:
  std::vector<TensorPointer> together_;
};

}  // namespace byteps

// What a worker has counted since its start.
#ifndef TF_BYTEPS_CC_WORKER_WORKER_COUNTERS_H_
#define TF_BYTEPS_CC_WORKER_WORKER_COUNTERS_H_

#include "cc/van/van.h"
#include "cc/worker/state/worker_counters.h"

namespace byteps {

struct WorkerCounters : StateCounters {
  VanCounters van;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_WORKER_WORKER_COUNTERS_H_

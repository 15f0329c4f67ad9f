// What a worker has counted since its start.
#pragma once

#include "cc/van/van.h"
#include "cc/worker/state/worker_counters.h"

namespace byteps {

struct WorkerCounters : StateCounters {
  VanCounters van;
};

}  // namespace byteps

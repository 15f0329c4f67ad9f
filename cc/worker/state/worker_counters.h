// What a worker's decisions count. worker/worker_counters.h adds what its Van does.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/worker/state/step_meter.h"

namespace byteps {

// Of one connection to a server.
struct PathCounters {
  int32_t server = 0;
  uint32_t path = 0;
  uint64_t pushed_bytes = 0;
  uint64_t received_bytes = 0;
  uint64_t in_flight_bytes = 0;
  uint64_t reconnects = 0;  // to the same process
};

struct StateCounters {
  uint64_t started_exchanges = 0;
  uint64_t exchanges = 0;  // tensors that ended, well or not
  uint64_t failed_exchanges = 0;
  int64_t exchanging_ns = 0;  // with at least one exchange in flight
  uint64_t pushed_parts = 0;
  uint64_t pushed_bytes = 0;        // payload handed to the Van
  uint64_t uncompressed_bytes = 0;  // what that is before compression
  uint64_t credit_bytes = 0;        // how much may be in flight
  uint64_t unanswered_bytes = 0;    // results to come for what was pushed
  uint64_t received_bytes = 0;      // payload of replies
  uint64_t received_parts = 0;
  uint64_t in_flight_bytes = 0;  // of the credit
  uint64_t queued_parts = 0;     // that wait for credit
  uint64_t retried_parts = 0;    // that are pushed again: the connection broke, or the part moved
  uint64_t lost_servers = 0;     // while training went on
  uint64_t returned_servers = 0;
  StepCounters steps;
  std::vector<PathCounters> paths;
};

}  // namespace byteps

// ArrivalReports: by how much each worker's contributions come after the first of their rounds, as
// the servers report it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/status.h"
#include "cc/wire/control.h"

namespace byteps {

// Not thread-safe. Nothing blocks.
class ArrivalReports {
 public:
  ArrivalReports(int32_t num_workers, int32_t num_servers)
      : num_workers_(num_workers), num_servers_(num_servers) {}

  // Replaces what the server has reported of these workers before.
  Status Take(int32_t server, const ArrivalReport& report);

  // Of all servers together, by rank; empty before the first report.
  std::vector<WorkerLag> Lags() const;

  // A line of a stall report, with the latest workers; nothing if the servers have not reported.
  std::string Text() const;

 private:
  const int32_t num_workers_;
  const int32_t num_servers_;
  std::vector<std::vector<WorkerLag>> lags_;  // by server and rank
};

}  // namespace byteps

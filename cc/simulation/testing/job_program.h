// JobProgram: what the workers of a SimulatedJob do, but for rounds of hosts with GPUs
// (round_program.h).
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include "cc/worker/worker.h"

namespace byteps {

// What has happened to a SimulatedJob so far.
struct JobFaults {
  bool has_lost_worker = false;  // exchanges may fail by it
  bool has_lost_server = false;
};

class JobProgram {
 public:
  virtual ~JobProgram() = default;

  // What worker `rank` does. False: an exchange has failed, which may be if a worker is lost.
  virtual bool Run(Worker* worker, int32_t rank) = 0;
  // At the end of the job: what a worker got is still as it was.
  virtual void CheckEnd(int32_t /*rank*/) {}
  // Whether a server may be killed now, without an exchange that fails; and it is killed. Only of
  // programs that ask for that (SimulatedJob::LoseServer).
  virtual bool MayLose(int32_t /*server*/) const { return true; }
  virtual void OnLose() {}
  // Of one round of all tensors.
  virtual uint64_t ResultBytes() const { return std::numeric_limits<uint32_t>::max(); }

  // Why Run has returned false.
  const std::string& failure() const { return failure_; }

 protected:
  std::string failure_;
};

}  // namespace byteps

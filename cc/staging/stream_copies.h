// StreamCopies: tells when streams have copied results. An event on a stream for each call would
// take longer than the call: one is recorded for all so far, with the next exchange that begins, or
// after a while.
#pragma once

#include <unordered_map>
#include <vector>

#include "cc/base/mutex.h"
#include "cc/base/work_threads.h"
#include "cc/gpu/rank_device.h"
#include "cc/staging/device_steps.h"

namespace byteps {

// Thread-safe. `device` and `steps` outlive its callbacks.
class StreamCopies {
 public:
  StreamCopies(RankDevice* device, DeviceSteps* steps) : device_(device), steps_(*steps) {}

  // Calls `done` when the stream has done all that it holds now.
  void WhenCopied(CudaStreamHandle stream, RankDevice::Done done);
  // What is told later has to wait for what the stream holds now, and no more.
  void Record(CudaStreamHandle stream);
  // As WorkThreads::Stop.
  void Stop() { recorder_.Stop(); }

 private:
  RankDevice* const device_;
  DeviceSteps& steps_;
  Mutex mutex_;
  // What is called when a stream has copied results, and has no event yet.
  std::unordered_map<CudaStreamHandle, std::vector<RankDevice::Done>> copied_
      BYTEPS_GUARDED_BY(mutex_);
  WorkThreads recorder_{"byteps-copied", 1};
};

}  // namespace byteps

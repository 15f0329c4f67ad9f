// HostStages: what the device does for a tensor that servers sum, for each of its parts: reduce to
// the part's owner -> copy out -> exchange with the servers -> copy in -> broadcast. A worker that
// is alone on its host skips what others would take part in.
#pragma once

#include <cstdint>
#include <vector>

#include "cc/base/work_threads.h"
#include "cc/gpu/rank_device.h"
#include "cc/staging/decode_queue.h"
#include "cc/staging/device_steps.h"
#include "cc/staging/stage_events.h"
#include "cc/staging/stream_results.h"
#include "cc/worker/worker.h"

namespace byteps {

// Thread-safe but for Reduce and Broadcast, whose order is the log's. Everything that it gets
// outlives it.
class HostStages {
 public:
  HostStages(Worker* worker, RankDevice* device, const HostPlace& place, StageEvents* events,
             DeviceSteps* steps, StreamResults* results, WorkThreads* launcher);

  // Begins the way of a part, up to its result at the owner. `for_all`: the result comes to memory
  // that all ranks share.
  void Reduce(const TensorPointer& tensor, uint32_t part, bool for_all);
  // Ends it.
  void Broadcast(const TensorPointer& tensor, uint32_t part);
  // All of it, of a worker that is alone.
  void StartAlone(const TensorPointer& tensor);

  // As WorkThreads::Stop: of what encodes, and what decodes.
  void StopEncoding() { encoders_.Stop(); }
  void StopDecoding() { decodes_.Stop(); }

 private:
  void ReducePart(const PartPointer& part);
  void NoteComputed(const PartPointer& part);
  // Consecutive parts of one tensor.
  void CopyOut(const std::vector<PartPointer>& parts);
  void OnCopiedOut(const PartPointer& part);
  void Send(const PartPointer& part);
  void OnReply(const PartPointer& part, bool is_encoded);
  void CopyIn(const PartPointer& part);
  void Decode(const std::vector<PartPointer>& parts);
  void OnCopiedIn(const PartPointer& part);

  Worker* const worker_;
  RankDevice* const device_;
  const HostPlace& place_;
  StageEvents& events_;
  DeviceSteps& steps_;
  StreamResults& results_;
  WorkThreads& launcher_;
  DecodeQueue decodes_;
  WorkThreads encoders_;
};

}  // namespace byteps

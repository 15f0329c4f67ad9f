// StreamResults: results that come to pinned memory, from where callers' streams copy them.
//
// The wait is one for a word in the host's memory, which CUDA cannot see through: what the GPU has
// to do before the word can be set must be on its streams before the wait is, or it could come to
// lie behind it. That is the reduction within the host and the copy of the input. So the stream
// that computes also copies the result, behind its wait, and the caller waits for no tensor before
// the inputs of all have been submitted (tf/stream_exchanges.h).
//
// That nobody waits for ever follows from the log's order where GPUs share a host. A rank puts the
// wait for a tensor on its stream when it has launched all that the log says up to this tensor, and
// what is launched later belongs to tensors that are later in the log. So the first tensor of the
// log that is not there yet lies behind waits for earlier ones only, which are over.
//
// Where GPUs share a host, the memory is one that all ranks see (shared_results.h).
#pragma once

#include <memory>
#include <vector>

#include "cc/base/work_threads.h"
#include "cc/gpu/rank_device.h"
#include "cc/staging/device_steps.h"
#include "cc/staging/local_messages.h"
#include "cc/staging/shared_results.h"
#include "cc/staging/stage_events.h"
#include "cc/staging/stream_copies.h"
#include "cc/worker/worker.h"

namespace byteps {

// Thread-safe but for what it says. Everything that it gets outlives it.
class StreamResults {
 public:
  StreamResults(Worker* worker, RankDevice* device, const HostPlace& place, StageEvents* events,
                DeviceSteps* steps, StreamCopies* copies, WorkThreads* launcher);

  // These four are for one thread, the one that follows the log.
  //
  // Of local rank 0; without memory if there can be none.
  SharedFile NewShared(const NcclUniqueId& id);
  // Whether streams can wait for what comes there.
  bool OpenShared(const GroupInvitation& invitation);
  // A place for a tensor's next round.
  Status PlaceShared(const TensorPointer& tensor);
  // False if the tensor has failed.
  bool SetArrival(const PartPointer& part);

  // Whether the caller's stream can wait for the tensor's results there.
  bool TakesShared(const StagedTensor& tensor) const;
  // Memory for the results of consecutive parts of one tensor, of a worker that is alone.
  Status TakeOutput(const std::vector<PartPointer>& parts, size_t bytes, PinnedPool::Block* output);
  // Tells the caller what its stream is to wait for.
  void SetOnSubmitted(const TensorPointer& tensor);

 private:
  class Event;

  Status MakeStreamWait(const TensorPointer& tensor, CudaStreamHandle stream, void* to);
  // Whether the tensor needs it no longer: false while results have to come.
  bool EndByItself(const TensorPointer& tensor);
  // Copies results that have come, for which no stream waits.
  void CopyArrivals(const TensorPointer& tensor);
  void OnArrivalsCopied(const TensorPointer& tensor);

  Worker* const worker_;
  RankDevice* const device_;
  const HostPlace& place_;
  StageEvents& events_;
  DeviceSteps& steps_;
  StreamCopies& copies_;
  WorkThreads& launcher_;
  std::shared_ptr<SharedResults> shared_;  // null where there are none
};

// Lets a stream go on whose results will not come. With the group's mutex held.
void ReleaseStream(const StagedTensor& tensor);
// Lets streams go on whose results have come. With the group's mutex held.
void LetStreamsGoOn(StagedArrival* arrival);

}  // namespace byteps

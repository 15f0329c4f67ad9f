// The door to the engine for the two libraries that use it: the TensorFlow ops (cc/tf) and the
// Python module (cc/python).
//
// A process has at most one worker engine. Python owns its life (tf_byteps/runtime calls Start and
// Stop through cc/python); the TensorFlow ops only find it here. Every function may be called
// from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/job.h"
#include "cc/base/status.h"
#include "cc/base/tensor_description.h"
#include "cc/worker/state/exchange_request.h"
#include "cc/worker/timeline.h"

namespace byteps {

class Worker;

// Which of the workers this process is, among all and among those on its host.
struct RankInfo {
  int32_t rank = 0;
  int32_t size = 1;
  int32_t local_rank = 0;
  int32_t local_size = 1;
};

// Starts this process's worker engine: connects to the coordinator and to every server of `job`.
// FAILED_PRECONDITION if one is running.
Status StartWorker(const JobDescription& job, const RankInfo& place);

// Says goodbye, ends every pending exchange with CANCELLED, and joins the engine's threads. No-op
// without an engine. `lost`: see Worker::Stop.
void StopWorker(const std::string& lost = "");

// The running engine, or null. The caller's reference keeps the object valid, not connected.
std::shared_ptr<Worker> CurrentWorker();

// Where the running engine is. FAILED_PRECONDITION without one.
Status CurrentRankInfo(RankInfo* place);

// Hands a tensor to the running engine. Without one, `request.done` gets FAILED_PRECONDITION ("call
// tf_byteps.init() first"): every request ends in exactly one call of `done`.
void Enqueue(ExchangeRequest request);

// Announces tensors before their first use, all in one message (protocol rule 6): the gradients of
// a traced function, say. Returns at once; a problem shows when a tensor is enqueued.
void Declare(std::vector<TensorDescription> tensors);

// The training has waited for a batch of so many samples meanwhile; by the wall clock.
void NoteBatch(int64_t begin_ns, int64_t end_ns, uint64_t samples);

// Records the exchanges of this process's workers, one after the other if there are several.
Timeline& ProcessTimeline();

}  // namespace byteps

#include "cc/engine/engine.h"

#include <algorithm>

#include "cc/base/fork.h"
#include "cc/base/mutex.h"
#include "cc/worker/stall_signal.h"
#include "cc/worker/worker.h"

namespace byteps {
namespace {

struct Current {
  Mutex mutex;
  std::shared_ptr<Worker> worker BYTEPS_GUARDED_BY(mutex);
  RankInfo place BYTEPS_GUARDED_BY(mutex);
  Timeline timeline;
};

// Never destroyed: a process that ends without StopWorker ends without a goodbye, and its peers
// must learn that.
Current& GetCurrent() {
  static Current* const current = new Current;
  return *current;
}

Status NotInitialized() {
  return FailedPrecondition("tf_byteps is not running here: call tf_byteps.init() first");
}

}  // namespace

Status StartWorker(const JobDescription& job, const RankInfo& place) {
  BYTEPS_RETURN_IF_ERROR(CheckNotForked());
  Current& current = GetCurrent();
  // Held while connecting: a second init waits, and is then refused.
  MutexLock lock(current.mutex);
  if (current.worker != nullptr)
    return FailedPrecondition("this process is a worker already; call shutdown() first");
  auto worker = std::make_shared<Worker>(job, place.rank, &current.timeline);
  BYTEPS_RETURN_IF_ERROR(worker->Start());
  StallSignal::Install();
  current.worker = std::move(worker);
  current.place = place;
  return OkStatus();
}

void StopWorker(const std::string& lost) {
  std::shared_ptr<Worker> worker;
  {
    Current& current = GetCurrent();
    MutexLock lock(current.mutex);
    worker.swap(current.worker);
  }
  if (worker != nullptr) worker->Stop(lost);
}

std::shared_ptr<Worker> CurrentWorker() {
  Current& current = GetCurrent();
  MutexLock lock(current.mutex);
  return current.worker;
}

Status CurrentRankInfo(RankInfo* place) {
  Current& current = GetCurrent();
  MutexLock lock(current.mutex);
  if (current.worker == nullptr) return NotInitialized();
  *place = current.place;
  return OkStatus();
}

void Enqueue(ExchangeRequest request) {
  const std::shared_ptr<Worker> worker = CurrentWorker();
  if (worker == nullptr) return request.done(NotInitialized());
  worker->Enqueue(std::move(request));
}

void Declare(std::vector<TensorDescription> tensors) {
  const std::shared_ptr<Worker> worker = CurrentWorker();
  if (worker != nullptr) worker->Declare(std::move(tensors));
}

void NoteBatch(int64_t begin_ns, int64_t end_ns, uint64_t samples) {
  ProcessTimeline().AddInput({begin_ns, end_ns});
  const std::shared_ptr<Worker> worker = CurrentWorker();
  if (worker != nullptr) worker->NoteBatch(std::max<int64_t>(0, end_ns - begin_ns), samples);
}

Timeline& ProcessTimeline() { return GetCurrent().timeline; }

}  // namespace byteps

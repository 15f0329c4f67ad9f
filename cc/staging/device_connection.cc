#include "cc/staging/device_connection.h"

#include "cc/base/mutex.h"
#include "cc/base/thread.h"

namespace byteps {
namespace {

constexpr int64_t kCheckIntervalNanos = 100'000'000;

struct Attempt {
  Mutex mutex;
  CondVar changed;
  bool ended BYTEPS_GUARDED_BY(mutex) = false;
  Status status BYTEPS_GUARDED_BY(mutex);
};

}  // namespace

Status ConnectDevice(const std::shared_ptr<RankDevice>& device, const NcclUniqueId& id,
                     const HostPlace& place, const std::function<Status()>& check) {
  const auto attempt = std::make_shared<Attempt>();
  const auto connect = [attempt, device, id, size = place.local_size, rank = place.local_rank] {
    const Status status = device->Connect(id, size, rank);
    MutexLock lock(attempt->mutex);
    attempt->status = status;
    attempt->ended = true;
    attempt->changed.NotifyAll();
  };
  Thread("byteps-connect", connect).Detach();
  MutexLock lock(attempt->mutex);
  while (true) {
    if (!attempt->ended) attempt->changed.WaitFor(attempt->mutex, kCheckIntervalNanos);
    if (attempt->ended) return attempt->status;
    BYTEPS_RETURN_IF_ERROR(check());
  }
}

}  // namespace byteps

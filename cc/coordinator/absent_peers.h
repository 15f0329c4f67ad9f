// AbsentPeers: looks whether those live whose connection has broken, as Absences decides
// (coordinator/state/absences.h), and tells who of them is dead.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "cc/base/job.h"
#include "cc/base/mutex.h"
#include "cc/base/thread.h"
#include "cc/coordinator/state/absences.h"

namespace byteps {

// Thread-safe. Its thread exists from the first Add on, and sleeps while all are there.
class AbsentPeers {
 public:
  // Called at most once for each Add, without a lock, on the thread of this object.
  using OnJoinTimeout = std::function<void(size_t peer, const std::string& why)>;

  // Van::IsRefusedAt.
  using IsRefusedAt = std::function<bool(const Endpoint& endpoint, double timeout)>;

  AbsentPeers(IsRefusedAt is_refused_at, OnJoinTimeout on_join_timeout)
      : is_refused_at_(std::move(is_refused_at)), on_join_timeout_(std::move(on_join_timeout)) {}
  ~AbsentPeers() { Stop(); }

  // `listens_at`: where the process listens as long as it lives; port 0: unknown.
  void Add(size_t peer, const Endpoint& listens_at);

  // It is there again.
  void Remove(size_t peer);

  // Waits for a running call. Idempotent; not from inside it.
  void Stop();

 private:
  void Run();

  const IsRefusedAt is_refused_at_;
  const OnJoinTimeout on_join_timeout_;
  Mutex mutex_;
  CondVar changed_;
  Thread thread_;
  Absences absences_ BYTEPS_GUARDED_BY(mutex_);
  bool stopping_ BYTEPS_GUARDED_BY(mutex_) = false;
};

}  // namespace byteps

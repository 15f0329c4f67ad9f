// AbsentPeers: those whose connection has broken. Tells who of them is dead: the host of a process
// that has ended refuses connections to the port where it listened, and whoever lives comes again
// within kReconnectSeconds (protocol rule 20).
#ifndef TF_BYTEPS_CC_COORDINATOR_ABSENT_PEERS_H_
#define TF_BYTEPS_CC_COORDINATOR_ABSENT_PEERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "cc/base/job.h"
#include "cc/base/mutex.h"
#include "cc/base/thread.h"

namespace byteps {

// Thread-safe. Its thread exists from the first Add on, and sleeps while all are there.
class AbsentPeers {
 public:
  // Called at most once for each Add, without a lock, on the thread of this object.
  using OnStaysAway = std::function<void(size_t peer, const std::string& why)>;

  // Van::IsRefusedAt.
  using IsRefusedAt = std::function<bool(const Endpoint& endpoint, double timeout)>;

  AbsentPeers(IsRefusedAt is_refused_at, OnStaysAway on_stays_away)
      : is_refused_at_(std::move(is_refused_at)), on_stays_away_(std::move(on_stays_away)) {}
  ~AbsentPeers() { Stop(); }

  // `listens_at`: where the process listens as long as it lives; port 0: unknown.
  void Add(size_t peer, const Endpoint& listens_at);

  // It is there again.
  void Remove(size_t peer);

  // Waits for a running call. Idempotent; not from inside it.
  void Stop();

 private:
  struct Absence {
    Endpoint listens_at;
    int64_t begin_ns = 0;
    int looks = 0;
    uint64_t id = 0;
  };

  void Run();
  int64_t NextLook(const Absence& absence) const;

  const IsRefusedAt is_refused_at_;
  const OnStaysAway on_stays_away_;
  Mutex mutex_;
  CondVar changed_;
  Thread thread_;
  std::map<size_t, Absence> absent_ BYTEPS_GUARDED_BY(mutex_);
  uint64_t next_id_ BYTEPS_GUARDED_BY(mutex_) = 0;
  bool stopping_ BYTEPS_GUARDED_BY(mutex_) = false;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_COORDINATOR_ABSENT_PEERS_H_

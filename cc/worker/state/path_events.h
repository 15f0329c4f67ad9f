// PathEvents: connections to servers that are made, break, and are made again.
// A connection that breaks while both processes live comes again (van/reconnector.h). Then the
// worker asks what has become of the pushes that it made over it and has no answer to; the server
// says which of them go on, and from where, and sends answers again that were lost.
// Once nothing comes any more of parts that get other owners, because connections have closed and
// replies have ended, this worker says how far it is with them.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "cc/base/job.h"
#include "cc/worker/state/effects.h"
#include "cc/worker/state/failover.h"
#include "cc/worker/state/key_table.h"
#include "cc/worker/state/lifecycle.h"
#include "cc/worker/state/paths.h"
#include "cc/worker/state/transmission.h"
#include "cc/worker/state/worker_counters.h"

namespace byteps {

// Not thread-safe.
class PathEvents {
 public:
  // All of them outlive it.
  PathEvents(const JobDescription& job, int32_t rank, const Lifecycle& lifecycle,
             WorkerFailover* failover, KeyTable* keys, ServerLinks* servers,
             Transmission* transmission)
      : job_(job),
        rank_(rank),
        lifecycle_(lifecycle),
        failover_(failover),
        keys_(keys),
        servers_(servers),
        transmission_(transmission) {}

  // Somebody is about to connect. Whether there is a connection already; if not, fills the rest:
  // where the server is, and whether it is the process to which there was one.
  struct Attempt {
    bool is_open = false;
    bool again = false;
    Endpoint endpoint;
    std::string host;
  };
  Attempt BeginAttempt(int32_t server, uint32_t path);
  // Whether an attempt that goes on can still be of use.
  Status CheckMayConnect(int32_t server) const;

  // `again`: what both ends have said in their handshake.
  void OnOpen(const std::shared_ptr<Connection>& connection, const Source& source, bool again,
              Effects* effects);
  Status OnResumeAnswer(const Source& source, const ResumeAnswer& answer, Effects* effects);
  // Whether it is to be made again; `life`: see Reconnector.
  bool OnClosed(const Source& source, int* life, Effects* effects);
  // A connection has closed, a reply has ended, or a failover has begun: if nothing comes from the
  // lost servers any more, nor of the parts that leave others, PartProgress is due.
  void ReportIfDrained(Effects* effects);
  // So much of an exchange's pushes has been taken back (Effects::Revocation).
  void OnRevoked(const Source& source, uint64_t bytes, Effects* effects);

  // It cannot be made again. Nothing if that is no news.
  enum class Loss { kNothing, kFailOver, kEndsJob };
  Loss OnServerUnreachable(int32_t server, int life) const;

  void AddTo(StateCounters* counters) const { counters->retried_parts += retried_parts_; }

 private:
  // Of those that leave their servers.
  std::vector<PartProgress::Part> ProgressOfParts() const;

  const JobDescription& job_;
  const int32_t rank_;
  const Lifecycle& lifecycle_;
  WorkerFailover* const failover_;
  KeyTable* const keys_;
  ServerLinks* const servers_;
  Transmission* const transmission_;
  uint64_t retried_parts_ = 0;
};

}  // namespace byteps

// Watch: what takes long: deadlines, stalls, stragglers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cc/base/job.h"
#include "cc/worker/state/arrival_reports.h"
#include "cc/worker/state/effects.h"
#include "cc/worker/state/exchanges.h"
#include "cc/worker/state/key_table.h"
#include "cc/worker/state/paths.h"
#include "cc/worker/state/stall_reports.h"
#include "cc/worker/state/straggler_watch.h"

namespace byteps {

// Not thread-safe.
class Watch {
 public:
  // All of them outlive it.
  Watch(const JobDescription& job, int32_t rank, const KeyTable& keys, const ServerLinks& servers,
        Exchanges* exchanges)
      : job_(job),
        rank_(rank),
        keys_(keys),
        exchanges_(exchanges),
        arrivals_(job.num_workers(), job.num_servers()),
        stalls_(job, rank, keys, servers, arrivals_) {}

  // Time has passed. `is_asked_for`: somebody wants a stall report. An error: the job is to end.
  Status OnTick(bool is_asked_for, Effects* effects);

  // What a server has seen.
  Status OnArrivals(int32_t server, const ArrivalReport& report) {
    return arrivals_.Take(server, report);
  }
  std::vector<WorkerLag> Lags() const { return arrivals_.Lags(); }

  // What others ask, and find out.
  void OnStallQuery(const StallQuery& query, Effects* effects) const;
  // What is to be logged.
  std::string OnStallNotice(const StallNotice& notice, const Moment& now) const;
  void NoteLogged(const Moment& now) { stalls_.NoteLogged(now.ns); }

 private:
  // Returns when the one that waits longest was enqueued; now if none waits.
  int64_t EndOverdue(Effects* effects);
  void NameStraggler(Effects* effects);

  const JobDescription& job_;
  const int32_t rank_;
  const KeyTable& keys_;
  Exchanges* const exchanges_;
  ArrivalReports arrivals_;
  StallReports stalls_;
  StragglerWatch straggler_watch_;
};

}  // namespace byteps

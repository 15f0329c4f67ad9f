// StallReports: when to ask what exchanges wait for that take long, and this worker's words in the
// answers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "cc/base/job.h"
#include "cc/base/status.h"
#include "cc/wire/control.h"
#include "cc/worker/state/arrival_reports.h"
#include "cc/worker/state/key_table.h"
#include "cc/worker/state/paths.h"

namespace byteps {

// Reads what the worker knows of its tensors, servers and the others. Not thread-safe.
class StallReports {
 public:
  // All of them outlive it.
  StallReports(const JobDescription& job, int32_t rank, const KeyTable& keys,
               const ServerLinks& servers, const ArrivalReports& arrivals)
      : job_(job), rank_(rank), keys_(keys), servers_(servers), arrivals_(arrivals) {}

  // A report is in the log.
  void NoteLogged(int64_t now_ns) { last_logged_ns_ = now_ns; }

  // The question for the coordinator, if one is due or somebody asks for a report. `oldest_ns`:
  // when the exchange that waits longest was enqueued; `now_ns` if none waits.
  std::optional<StallQuery> NextQuery(int64_t now_ns, int64_t oldest_ns, bool is_asked_for);
  // An error if the job must not wait any longer.
  Status CheckPatience(int64_t now_ns, int64_t oldest_ns) const;

  // `last`: the exchange that has ended last.
  StallAnswer Answer(const StallQuery& query, const EndedExchange& last, int64_t now_ns) const;
  // For the log.
  std::string Text(const StallNotice& notice, const EndedExchange& last, int64_t now_ns) const;

 private:
  bool IsLast(int64_t now_ns, int64_t oldest_ns) const;
  std::string Doing(const EndedExchange& last, int64_t now_ns) const;
  std::string OwedText() const;

  const JobDescription& job_;
  const int32_t rank_;
  const KeyTable& keys_;
  const ServerLinks& servers_;
  const ArrivalReports& arrivals_;
  int64_t last_query_ns_ = 0;  // 0: there was none
  int64_t last_logged_ns_ = 0;
};

}  // namespace byteps

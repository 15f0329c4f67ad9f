// What has become ready, to the host's sequencer, or to be begun.
#include <string>
#include <utility>

#include "cc/staging/local_group.h"

namespace byteps {
namespace {

// Equal for tensors that can be combined with each other.
uint64_t Agreement(const ExchangeRequest& request) {
  const std::string rows =
      request.has_fixed_rows ? " of " + std::to_string(request.gather_rows) + " rows" : "";
  return KeyOfName(request.tensor.ToString() + rows);
}

}  // namespace

void LocalGroup::Hold() {
  MutexLock lock(ready_mutex_);
  ready_.Hold();
}

void LocalGroup::Release() {
  std::vector<TensorPointer> together;
  {
    MutexLock lock(ready_mutex_);
    ready_.Release();
    SendReady();
    together = ready_.TakeTensors();
  }
  one_host_stages_.Start(together);
}

void LocalGroup::SendReady() {
  std::vector<LaunchReport> reports = ready_.TakeReports();
  if (!reports.empty()) channel_->Send(std::move(reports));
}

void LocalGroup::Report(LaunchReport report) {
  report.local_rank = place_.local_rank;
  MutexLock lock(ready_mutex_);
  ready_.Add(std::move(report));
  SendReady();
}

void LocalGroup::ReportTensor(LaunchReport::Kind kind, const StagedTensor& tensor, uint32_t part,
                              const Status& reason, bool takes_shared) {
  const Exchange& exchange = *tensor.exchange;
  LaunchReport report;
  report.kind = kind;
  report.key = exchange.entry->key;
  report.round = exchange.round;
  report.part = part;
  report.part_count = tensor.part_count();
  report.rows = exchange.request.gather_rows;
  report.agreement = Agreement(tensor.gpu);
  report.reason = reason;
  report.takes_shared = takes_shared;
  Report(std::move(report));
}

// The others of this host have nothing at servers that could tell them.
void LocalGroup::OnGivenUp(uint64_t key, uint64_t round, const Status& reason) {
  if (place_.alone()) return;
  LaunchReport report;
  report.kind = LaunchReport::Kind::kFailed;
  report.key = key;
  report.round = round;
  report.reason = Status(reason.code(), "worker " + std::to_string(worker_->rank()) +
                                            " has given it up: " + reason.message());
  Report(std::move(report));
}

}  // namespace byteps

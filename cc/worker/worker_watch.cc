// The part of Worker that looks at what takes long: deadlines, and tensors that wait for others.
#include <algorithm>

#include "cc/base/clock.h"
#include "cc/base/logging.h"
#include "cc/worker/stall_signal.h"
#include "cc/worker/worker.h"
#include "cc/worker/worker_actions.h"

namespace byteps {
namespace {

// How long the others may take to answer. They do so on engine threads; who does not is stopped, or
// unreachable.
constexpr int64_t kAnswerNanos = 2 * int64_t{1000000000};

std::string Seconds(int64_t nanos) { return std::to_string(nanos / 1000000000) + " s"; }

}  // namespace

void Worker::Watch() {
  std::string report;
  Status stalled;
  {
    Actions actions(this);
    std::lock_guard<std::mutex> lock(mutex_);
    const int64_t now = MonotonicNanos();
    const int64_t oldest_ns = EndOverdue(now, &actions);
    ReportResults(now, &actions);
    if (stall_report_ != nullptr &&
        (stall_report_->IsComplete() || now > stall_report_->begin_ns() + kAnswerNanos)) {
      report = stall_report_->Text(now) + LagsText();
      stall_report_ = nullptr;
    }
    stalled = CheckStalls(now, oldest_ns, &actions);
  }
  if (!report.empty()) LogWarning(report);
  if (!stalled.ok()) Fail(stalled);
}

// Returns when the one that waits longest was enqueued; `now` if none waits.
int64_t Worker::EndOverdue(int64_t now, Actions* actions) {
  const double limit = job_.options.operation_timeout;
  int64_t oldest_ns = now;
  for (const auto& [name, key] : keys_by_name_) {
    const std::shared_ptr<Exchange> live = key->live;
    if (live == nullptr) continue;
    oldest_ns = std::min(oldest_ns, live->enqueued_ns);
    if (limit <= 0 || now - live->enqueued_ns < SecondsToNanos(limit)) continue;
    const std::string what = live->entry == nullptr ? "the scheduler has not placed it"
                                                    : std::to_string(live->parts_left) + " of " +
                                                          std::to_string(live->part_done.size()) +
                                                          " parts have no result";
    Finish(
        live,
        DeadlineExceeded(
            live->Name() + ": not done after " + std::to_string(static_cast<int64_t>(limit)) +
            " s (" + what +
            "); another worker has probably not sent it. BYTEPS_OPERATION_TIMEOUT sets the limit"),
        actions);
  }
  return oldest_ns;
}

// Begins a report if one is due or asked for. An error if the job must not wait any longer.
Status Worker::CheckStalls(int64_t now, int64_t oldest_ns, Actions* actions) {
  const double warning = job_.options.stall_warning, shutdown = job_.options.stall_shutdown;
  const double age = (now - oldest_ns) * 1e-9;
  const bool is_asked_for = stall_report_ == nullptr && StallSignal::Take();
  const bool is_due = warning > 0 && age > warning && now >= next_stall_report_ns_;
  if (stall_report_ == nullptr && (is_due || is_asked_for)) {
    const std::vector<std::shared_ptr<Exchange>> oldest = OldestExchanges();
    next_stall_report_ns_ = now + SecondsToNanos(warning);
    StallQuery query;
    query.id = ++next_request_;
    query.from = rank_;
    std::vector<StallReport::Waiting> waiting;
    for (size_t i = 0; i < std::min(oldest.size(), kMostStalled); ++i) {
      query.tensors.push_back({oldest[i]->request.tensor.name, oldest[i]->round});
      waiting.push_back({oldest[i]->request.tensor, oldest[i]->round, oldest[i]->enqueued_ns});
    }
    stall_report_ = std::make_unique<StallReport>(rank_, job_.num_workers(), query.id, waiting,
                                                  oldest.size() - waiting.size(), now);
    actions->messages.push_back(std::move(query));
  }
  if (shutdown <= 0 || age <= shutdown || !failure_.ok()) return OkStatus();
  return DeadlineExceeded(
      "worker " + std::to_string(rank_) + " has waited " +
      std::to_string(static_cast<int64_t>(age)) +
      " s for other workers; the log says for whom. BYTEPS_STALL_SHUTDOWN_SECONDS (bpslaunch "
      "--stall-shutdown-seconds) allows no more");
}

// Those that have not ended, the one that waits longest first.
std::vector<std::shared_ptr<Exchange>> Worker::OldestExchanges() const {
  std::vector<std::shared_ptr<Exchange>> live;
  for (const auto& [name, key] : keys_by_name_) {
    if (key->live != nullptr) live.push_back(key->live);
  }
  std::sort(live.begin(), live.end(),
            [](const auto& a, const auto& b) { return a->enqueued_ns < b->enqueued_ns; });
  return live;
}

void Worker::AnswerStallQuery(const StallQuery& query, Actions* actions) {
  StallAnswer answer;
  answer.id = query.id;
  answer.from = rank_;
  answer.to = query.from;
  for (const TensorRound& tensor : query.tensors) {
    const auto key = keys_by_name_.find(tensor.name);
    const bool sent = key != keys_by_name_.end() && key->second->next_round > tensor.round;
    answer.sent.push_back(sent ? 1 : 0);
  }
  answer.doing = Doing();
  actions->messages.push_back(std::move(answer));
}

std::string Worker::Doing() const {
  const int64_t now = MonotonicNanos();
  const std::vector<std::shared_ptr<Exchange>> oldest = OldestExchanges();
  std::string text;
  if (!oldest.empty()) {
    text = "waits for " + oldest[0]->Name() + ", since " + Seconds(now - oldest[0]->enqueued_ns);
    if (oldest.size() > 1) text += ", and for " + std::to_string(oldest.size() - 1) + " more";
  } else if (last_ended_.key == nullptr) {
    text = "has not exchanged anything yet";
  } else {
    text = "waits for nothing; its last exchange, tensor \"" + last_ended_.key->name +
           "\", round " + std::to_string(last_ended_.round) + ", ended " +
           Seconds(now - last_ended_.ns) + " ago";
  }
  return text;
}

std::vector<WorkerLag> Worker::Lags() const {
  if (arrivals_.empty()) return {};
  std::vector<WorkerLag> all(job_.num_workers());
  std::vector<double> recent(all.size());
  for (const ArrivalReport& report : arrivals_) {
    for (size_t rank = 0; rank < report.workers.size(); ++rank) {
      const WorkerLag& lag = report.workers[rank];
      all[rank].contributions += lag.contributions;
      all[rank].dropped += lag.dropped;
      all[rank].total_ns += lag.total_ns;
      all[rank].max_ns = std::max(all[rank].max_ns, lag.max_ns);
      recent[rank] += static_cast<double>(lag.recent_ns) * static_cast<double>(lag.contributions);
    }
  }
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank].contributions > 0)
      all[rank].recent_ns = static_cast<uint64_t>(recent[rank] / all[rank].contributions);
  }
  return all;
}

// A line of a report; nothing if the servers have not reported.
std::string Worker::LagsText() const {
  std::string text;
  const std::vector<WorkerLag> lags = Lags();
  for (size_t rank = 0; rank < lags.size(); ++rank) {
    if (lags[rank].contributions == 0) continue;
    text += text.empty() ? "\n  so far, after the first of each round: " : ", ";
    text += "rank " + std::to_string(rank) + " by " +
            std::to_string((lags[rank].recent_ns + 500000) / 1000000) + " ms";
  }
  return text;
}

}  // namespace byteps

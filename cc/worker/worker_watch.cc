// The part of Worker that looks at what takes long: deadlines, and tensors that wait for others.
#include <algorithm>
#include <map>
#include <optional>
#include <string>

#include "cc/base/clock.h"
#include "cc/base/logging.h"
#include "cc/worker/stall_signal.h"
#include "cc/worker/worker.h"
#include "cc/worker/worker_actions.h"

namespace byteps {
namespace {

// Of a report, whose other lines are StallDigest's.
constexpr size_t kMostServers = 8;
constexpr size_t kMostLags = 8;  // in its last line
// How long a stall that ends the job waits for the report that its error refers to.
constexpr double kReportSeconds = 10;

std::string Seconds(int64_t nanos) { return std::to_string(nanos / 1000000000) + " s"; }

}  // namespace

void Worker::Watch() {
  Status stalled;
  {
    Actions actions(this);
    std::lock_guard<std::mutex> lock(mutex_);
    const int64_t now = MonotonicNanos();
    const int64_t oldest_ns = EndOverdue(now, &actions);
    ReportResults(now, &actions);
    stalled = CheckStalls(now, oldest_ns, &actions);
    NameStraggler(now);
  }
  if (!stalled.ok()) Fail(stalled);
}

// One worker tells of it: all see the same.
void Worker::NameStraggler(int64_t now) {
  const StepCounters& steps = step_meter_.counters();
  if (rank_ != 0 || !straggler_watch_.IsDue(steps, now)) return;
  const std::optional<Straggler> found = straggler_watch_.Look(Lags(), steps, now);
  if (!found.has_value()) return;
  const int64_t lag_ms = found->lag_ns / 1000000, step_ms = found->step_ns / 1000000;
  LogWarning("worker " + std::to_string(found->rank) + " is a straggler: its tensors come " +
                 std::to_string(lag_ms) + " ms after the first ones, and a step takes " +
                 std::to_string(step_ms) +
                 " ms. See its CPUs, its input and its link; bpslaunch --timeline says which",
             {"straggler",
              {{"peer_role", std::string("worker")},
               {"peer_rank", static_cast<int64_t>(found->rank)},
               {"lag_ms", lag_ms},
               {"step_ms", step_ms}}});
}

// Returns when the one that waits longest was enqueued; `now` if none waits.
int64_t Worker::EndOverdue(int64_t now, Actions* actions) {
  const double limit = job_.options.timeouts.operation_timeout;
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

// Asks for a report if one is due or wanted. An error if the job must not wait any longer.
Status Worker::CheckStalls(int64_t now, int64_t oldest_ns, Actions* actions) {
  const double warning = job_.options.timeouts.stall_warning,
               shutdown = job_.options.timeouts.stall_shutdown;
  const double age = (now - oldest_ns) * 1e-9;
  const bool is_asked_for = StallSignal::Take();
  const bool is_last = shutdown > 0 && age > shutdown;
  const bool is_long = (warning > 0 && age > warning) || is_last;
  if (is_asked_for || (is_long && now >= next_stall_report_ns_)) {
    const std::vector<std::shared_ptr<Exchange>> oldest = OldestExchanges();
    next_stall_report_ns_ = now + SecondsToNanos(warning > 0 ? warning : kReportSeconds);
    StallQuery query;
    query.from = rank_;
    query.wants_text = is_asked_for;
    for (size_t i = 0; i < std::min(oldest.size(), kMostStalled); ++i) {
      const TensorDescription& tensor = oldest[i]->request.tensor;
      query.tensors.push_back({tensor.name, oldest[i]->round, tensor.ToString(),
                               static_cast<uint32_t>((now - oldest[i]->enqueued_ns) / 1000000000)});
    }
    query.more = static_cast<uint32_t>(oldest.size() - query.tensors.size());
    actions->messages.push_back(std::move(query));
  }
  const bool is_reported = last_stall_notice_ns_ > oldest_ns || age > shutdown + kReportSeconds;
  if (!is_last || !is_reported || !failure_.ok()) return OkStatus();
  return DeadlineExceeded(
      "worker " + std::to_string(rank_) + " has waited " +
      std::to_string(static_cast<int64_t>(age)) +
      " s for other workers; the log says for whom. BYTEPS_STALL_SHUTDOWN_SECONDS (bpslaunch "
      "--stall-shutdown-seconds) allows no more");
}

// Which servers have what others wait for: the network between may be at fault, or the server.
std::string Worker::OwedText() const {
  std::map<int32_t, size_t> owed;
  for (const std::shared_ptr<Exchange>& exchange : OldestExchanges()) {
    if (exchange->entry == nullptr) continue;
    for (size_t part = 0; part < exchange->places.size(); ++part) {
      const bool is_sent = exchange->sent_on[part] >= 0;
      if (is_sent && !exchange->part_done[part]) ++owed[exchange->places[part].server];
    }
  }
  std::string text;
  size_t lines = 0;
  for (const auto& [server, parts] : owed) {
    if (++lines > kMostServers)
      return text + "\n  and " + std::to_string(owed.size() - kMostServers) + " servers more do";
    const ServerLink& link = servers_[server];
    const bool is_open = std::any_of(link.paths.begin(), link.paths.end(),
                                     [](const Path& path) { return path.connection != nullptr; });
    text += "\n  server " + std::to_string(server) + " at " + link.endpoint.ToString() + " owes " +
            std::to_string(parts) + (parts == 1 ? " part" : " parts") + " of results" +
            (is_open ? "" : " and is not connected at present");
  }
  return text;
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
  for (const StalledTensor& tensor : query.tensors) {
    const auto key = keys_by_name_.find(tensor.name);
    const bool sent = key != keys_by_name_.end() && key->second->next_round > tensor.round;
    answer.sent.push_back(sent ? 1 : 0);
  }
  answer.doing = Doing();
  actions->messages.push_back(std::move(answer));
}

std::string Worker::StallText(const StallNotice& notice) const {
  if (!notice.text.empty()) return notice.text + OwedText() + LagsText();
  return "worker " + std::to_string(rank_) + " " + Doing() + "; the log of worker " +
         std::to_string(notice.reporter) + " says for whom";
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
  for (const std::vector<WorkerLag>& lags : arrivals_) {
    for (size_t rank = 0; rank < lags.size(); ++rank) {
      const WorkerLag& lag = lags[rank];
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

// A line of a report, with the latest workers; nothing if the servers have not reported.
std::string Worker::LagsText() const {
  std::string text;
  const std::vector<WorkerLag> lags = Lags();
  std::vector<size_t> latest;
  for (size_t rank = 0; rank < lags.size(); ++rank) {
    if (lags[rank].contributions > 0) latest.push_back(rank);
  }
  std::stable_sort(latest.begin(), latest.end(),
                   [&](size_t a, size_t b) { return lags[a].recent_ns > lags[b].recent_ns; });
  latest.resize(std::min(latest.size(), kMostLags));
  std::sort(latest.begin(), latest.end());
  for (const size_t rank : latest) {
    text += text.empty() ? "\n  so far, after the first of each round: " : ", ";
    text += "rank " + std::to_string(rank) + " by " +
            std::to_string((lags[rank].recent_ns + 500000) / 1000000) + " ms";
  }
  return text;
}

}  // namespace byteps

#include "cc/worker/state/stall_reports.h"

#include <algorithm>
#include <map>
#include <memory>
#include <vector>

namespace byteps {
namespace {

// Of a report, whose other lines are StallDigest's.
constexpr size_t kMostServers = 8;
// How long a stall that ends the job waits for the report that its error refers to.
constexpr double kReportSeconds = 10;

std::string Seconds(int64_t nanos) { return std::to_string(nanos / 1000000000) + " s"; }

double AgeSeconds(int64_t now_ns, int64_t oldest_ns) { return (now_ns - oldest_ns) * 1e-9; }

}  // namespace

bool StallReports::IsLast(int64_t now_ns, int64_t oldest_ns) const {
  const double shutdown = job_.options.timeouts.stall_shutdown;
  return shutdown > 0 && AgeSeconds(now_ns, oldest_ns) > shutdown;
}

std::optional<StallQuery> StallReports::NextQuery(int64_t now_ns, int64_t oldest_ns,
                                                  bool is_asked_for) {
  const double warning = job_.options.timeouts.stall_warning;
  const bool is_long =
      (warning > 0 && AgeSeconds(now_ns, oldest_ns) > warning) || IsLast(now_ns, oldest_ns);
  const double pause = warning > 0 ? warning : kReportSeconds;
  const bool is_due =
      is_long && (last_query_ns_ == 0 || AgeSeconds(now_ns, last_query_ns_) >= pause);
  if (!is_asked_for && !is_due) return std::nullopt;
  const std::vector<std::shared_ptr<Exchange>> oldest = keys_.OldestExchanges();
  last_query_ns_ = now_ns;
  StallQuery query;
  query.from = rank_;
  query.wants_text = is_asked_for;
  for (size_t i = 0; i < std::min(oldest.size(), kMostStalled); ++i) {
    const TensorDescription& tensor = oldest[i]->request.tensor;
    query.tensors.push_back(
        {tensor.name, oldest[i]->round, tensor.ToString(),
         static_cast<uint32_t>((now_ns - oldest[i]->enqueued_ns) / 1000000000)});
  }
  query.more = static_cast<uint32_t>(oldest.size() - query.tensors.size());
  return query;
}

Status StallReports::CheckPatience(int64_t now_ns, int64_t oldest_ns) const {
  const double age = AgeSeconds(now_ns, oldest_ns);
  const bool is_reported =
      last_logged_ns_ > oldest_ns || age > job_.options.timeouts.stall_shutdown + kReportSeconds;
  if (!IsLast(now_ns, oldest_ns) || !is_reported) return OkStatus();
  return DeadlineExceeded(
      "worker " + std::to_string(rank_) + " has waited " +
      std::to_string(static_cast<int64_t>(age)) +
      " s for other workers; the log says for whom. BYTEPS_STALL_SHUTDOWN_SECONDS (bpslaunch "
      "--stall-shutdown-seconds) allows no more");
}

StallAnswer StallReports::Answer(const StallQuery& query, const EndedExchange& last,
                                 int64_t now_ns) const {
  StallAnswer answer;
  answer.id = query.id;
  answer.from = rank_;
  for (const StalledTensor& tensor : query.tensors) {
    const KeyTable::Key* const key = keys_.Find(tensor.name);
    answer.sent.push_back(key != nullptr && key->next_round > tensor.round ? 1 : 0);
  }
  answer.doing = Doing(last, now_ns);
  return answer;
}

std::string StallReports::Text(const StallNotice& notice, const EndedExchange& last,
                               int64_t now_ns) const {
  if (!notice.text.empty()) return notice.text + OwedText() + arrivals_.Text();
  return "worker " + std::to_string(rank_) + " " + Doing(last, now_ns) + "; the log of worker " +
         std::to_string(notice.reporter) + " says for whom";
}

std::string StallReports::Doing(const EndedExchange& last, int64_t now_ns) const {
  const std::vector<std::shared_ptr<Exchange>> oldest = keys_.OldestExchanges();
  std::string text;
  if (!oldest.empty()) {
    text = "waits for " + oldest[0]->Name() + ", since " + Seconds(now_ns - oldest[0]->enqueued_ns);
    if (oldest.size() > 1) text += ", and for " + std::to_string(oldest.size() - 1) + " more";
  } else if (last.key == nullptr) {
    text = "has not exchanged anything yet";
  } else {
    text = "waits for nothing; its last exchange, tensor \"" + last.key->name + "\", round " +
           std::to_string(last.round) + ", ended " + Seconds(now_ns - last.ns) + " ago";
  }
  return text;
}

// Which servers have what others wait for: the network between may be at fault, or the server.
std::string StallReports::OwedText() const {
  std::map<int32_t, size_t> owed;
  for (const std::shared_ptr<Exchange>& exchange : keys_.OldestExchanges()) {
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
    text += "\n  server " + std::to_string(server) + " at " + link.endpoint.ToString() + " owes " +
            std::to_string(parts) + (parts == 1 ? " part" : " parts") + " of results" +
            (link.is_open() ? "" : " and is not connected at present");
  }
  return text;
}

}  // namespace byteps

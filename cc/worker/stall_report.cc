#include "cc/worker/stall_report.h"

#include <utility>

namespace byteps {
namespace {

// "sent by ranks 0, 2; "; nothing without any.
std::string Ranks(const std::string& what, const std::vector<int32_t>& ranks) {
  if (ranks.empty()) return "";
  std::string text = what + (ranks.size() == 1 ? " rank " : " ranks ");
  for (size_t i = 0; i < ranks.size(); ++i) text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
  return text + "; ";
}

}  // namespace

StallReport::StallReport(int32_t rank, int32_t num_workers, uint64_t query_id,
                         std::vector<Waiting> waiting, size_t more, int64_t begin_ns)
    : rank_(rank),
      num_workers_(num_workers),
      query_id_(query_id),
      waiting_(std::move(waiting)),
      more_(more),
      begin_ns_(begin_ns) {}

void StallReport::Add(const StallAnswer& answer) {
  const bool fits = answer.id == query_id_ && answer.sent.size() == waiting_.size() &&
                    answer.from >= 0 && answer.from < num_workers_;
  if (fits) answers_[answer.from] = answer;
}

std::string StallReport::WhoHasSent(size_t index) const {
  std::vector<int32_t> sent, missing, silent;
  for (int32_t rank = 0; rank < num_workers_; ++rank) {
    const auto answer = answers_.find(rank);
    if (answer == answers_.end()) {
      silent.push_back(rank);
    } else {
      (answer->second.sent[index] != 0 ? sent : missing).push_back(rank);
    }
  }
  std::string text =
      Ranks("sent by", sent) + Ranks("not by", missing) + Ranks("unknown of", silent);
  if (text.size() > 2) text.resize(text.size() - 2);
  return text;
}

std::string StallReport::Text(int64_t now_ns) const {
  std::string text = "worker " + std::to_string(rank_);
  if (waiting_.empty()) text += " waits for no tensor";
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const Waiting& one = waiting_[i];
    text += i == 0 ? " waits for " : "\n  ";
    text += "tensor \"" + one.tensor.name + "\" (" + one.tensor.ToString() + "), round " +
            std::to_string(one.round) + ", since " +
            std::to_string((now_ns - one.since_ns) / 1000000000) + " s: " + WhoHasSent(i);
  }
  if (more_ > 0) text += "\n  and for " + std::to_string(more_) + " tensors more";
  for (int32_t rank = 0; rank < num_workers_; ++rank) {
    const auto answer = answers_.find(rank);
    bool has_sent_all = answer != answers_.end();
    if (has_sent_all) {
      for (const uint8_t sent : answer->second.sent) has_sent_all = has_sent_all && sent != 0;
    }
    if (has_sent_all && !waiting_.empty()) continue;
    text += "\n  rank " + std::to_string(rank) + ": ";
    text += answer == answers_.end()
                ? "does not answer; its process is stopped, or cannot be reached"
                : answer->second.doing;
  }
  return text;
}

}  // namespace byteps

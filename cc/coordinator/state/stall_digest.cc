#include "cc/coordinator/state/stall_digest.h"

#include <algorithm>

#include "cc/base/members.h"

namespace byteps {
namespace {

// Of a list of ranks, of a worker's text, and of workers that are told of. With the tensors, and
// with what the one that reports adds about servers, these are kMostLines.
constexpr size_t kMostRanges = 12;
constexpr size_t kMostBytes = 300;
constexpr size_t kMostWorkers = 23;
constexpr size_t kLinesOfTheReporter = 10;
static_assert(kMostWorkers + kMostStalled + 2 + kLinesOfTheReporter <= StallDigest::kMostLines);

// "sent by ranks 0, 2, 4-99; "; nothing without any.
std::string Ranks(const std::string& what, const std::vector<int32_t>& ranks) {
  if (ranks.empty()) return "";
  std::string text = what + (ranks.size() == 1 ? " rank " : " ranks ");
  size_t ranges = 0;
  for (size_t i = 0; i < ranks.size(); ++ranges) {
    if (ranges == kMostRanges) return text + " and " + std::to_string(ranks.size() - i) + " more; ";
    size_t last = i;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (last < i + 2) last = i;  // two are shorter by themselves
    text += (i > 0 ? ", " : "") + std::to_string(ranks[i]);
    if (last > i) text += "-" + std::to_string(ranks[last]);
    i = last + 1;
  }
  return text + "; ";
}

}  // namespace

// What is waited for longest.
StallQuery StallDigest::Ask(int64_t now_ns) {
  asked_ns_ = now_ns;
  std::map<std::pair<std::string, uint64_t>, Waiting> by_round;
  for (const auto& [rank, query] : queries_) {
    for (const StalledTensor& tensor : query.tensors)
      by_round.try_emplace({tensor.name, tensor.round}, Waiting{tensor, rank});
  }
  for (const auto& [round, waiting] : by_round) waiting_.push_back(waiting);
  std::stable_sort(waiting_.begin(), waiting_.end(), [](const Waiting& a, const Waiting& b) {
    return a.tensor.seconds > b.tensor.seconds;
  });
  waiting_.resize(std::min(waiting_.size(), kMostStalled));
  std::stable_sort(waiting_.begin(), waiting_.end(),
                   [](const Waiting& a, const Waiting& b) { return a.worker < b.worker; });
  StallQuery question;
  question.id = id_;
  for (const Waiting& waiting : waiting_) question.tensors.push_back(waiting.tensor);
  return question;
}

void StallDigest::AddAnswer(const StallAnswer& answer) {
  if (answer.id == id_ && answer.sent.size() == waiting_.size()) answers_[answer.from] = answer;
}

std::string StallDigest::WhoHasSent(size_t index, const std::set<int32_t>& joined) const {
  std::vector<int32_t> sent, missing, silent, without;
  const Members members = Members::Of(waiting_[index].tensor.name);
  for (int32_t rank = 0; rank < num_workers_; ++rank) {
    if (!members.Contain(rank)) continue;
    const auto answer = answers_.find(rank);
    const bool has_sent = answer != answers_.end() && answer->second.sent[index] != 0;
    if (has_sent) {
      sent.push_back(rank);
    } else if (joined.count(rank) > 0) {
      without.push_back(rank);
    } else {
      (answer == answers_.end() ? silent : missing).push_back(rank);
    }
  }
  std::string text = Ranks("sent by", sent) + Ranks("not by", missing) +
                     Ranks("unknown of", silent) + Ranks("without the joined", without);
  if (text.size() > 2) text.resize(text.size() - 2);
  return text;
}

// Whether somebody waits for `rank`, which has sent these.
bool StallDigest::IsLacked(int32_t rank, const std::vector<uint8_t>& sent) const {
  for (size_t i = 0; i < sent.size(); ++i) {
    if (sent[i] == 0 && Members::Of(waiting_[i].tensor.name).Contain(rank)) return true;
  }
  return false;
}

std::string StallDigest::TensorLines(const std::set<int32_t>& joined) const {
  std::string text;
  if (waiting_.empty())
    text = "worker " + std::to_string(reporter()) + " is not waiting for a tensor";
  size_t more = 0;
  for (const auto& [rank, query] : queries_)
    more = std::max(more, query.tensors.size() + static_cast<size_t>(query.more));
  for (size_t i = 0; i < waiting_.size(); ++i) {
    const Waiting& one = waiting_[i];
    if (i > 0) text += "\n  ";
    if (i == 0 || one.worker != waiting_[i - 1].worker)
      text += "worker " + std::to_string(one.worker) + " waits for ";
    text += "tensor \"" + one.tensor.name.substr(0, kMostBytes) + "\" (" +
            one.tensor.description.substr(0, kMostBytes) + "), round " +
            std::to_string(one.tensor.round) + ", since " + std::to_string(one.tensor.seconds) +
            " s: " + WhoHasSent(i, joined);
  }
  if (more > waiting_.size())
    text += "\n  and for " + std::to_string(more - waiting_.size()) + " tensors more";
  return text;
}

std::string StallDigest::Text(const std::set<int32_t>& joined) const {
  std::string text = TensorLines(joined);
  size_t named = 0, more = 0;
  for (int32_t rank = 0; rank < num_workers_; ++rank) {
    if (joined.count(rank) > 0 && !waiting_.empty()) continue;
    const auto answer = answers_.find(rank);
    const bool is_here = answer != answers_.end();
    if (is_here && !waiting_.empty()) {
      if (!IsLacked(rank, answer->second.sent)) continue;
    }
    if (++named > kMostWorkers) {
      ++more;
      continue;
    }
    text += "\n  rank " + std::to_string(rank) + ": ";
    text += is_here ? answer->second.doing.substr(0, kMostBytes)
                    : "does not answer; its process is stopped, or cannot be reached";
  }
  if (more > 0) text += "\n  and " + std::to_string(more) + " ranks more";
  return text;
}

}  // namespace byteps

// StallDigest: what is said about tensors that wait for other workers, once for all who wait.
//
// All wait for the same worker, and say so within the same second. So the coordinator collects for
// a moment, asks all workers once about what is waited for, and makes one text of what they answer:
// four messages for each worker, whoever waits. The one that waits with the lowest rank reports;
// the others refer to it.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "cc/wire/control.h"

namespace byteps {

// Not thread-safe.
class StallDigest {
 public:
  static constexpr size_t kMostLines = 40;

  // `id`: of the question to all.
  StallDigest(int32_t num_workers, uint64_t id, int64_t begin_ns)
      : num_workers_(num_workers), id_(id), begin_ns_(begin_ns) {}

  // A worker waits.
  void AddQuery(const StallQuery& query) { queries_.insert_or_assign(query.from, query); }

  // What all workers are to be asked; once.
  StallQuery Ask(int64_t now_ns);
  bool was_asked() const { return asked_ns_ != 0; }
  int64_t begin_ns() const { return begin_ns_; }
  int64_t asked_ns() const { return asked_ns_; }

  // Ignores answers to other questions.
  void AddAnswer(const StallAnswer& answer);

  // All workers have answered.
  bool IsComplete() const { return answers_.size() == static_cast<size_t>(num_workers_); }

  // Who waits, by rank, and who of them reports.
  const std::map<int32_t, StallQuery>& queries() const { return queries_; }
  int32_t reporter() const { return queries_.begin()->first; }

  // `joined`: the workers for which nobody waits.
  std::string Text(const std::set<int32_t>& joined) const;

 private:
  struct Waiting {
    StalledTensor tensor;
    int32_t worker = -1;  // the first that waits for it
  };

  std::string WhoHasSent(size_t index, const std::set<int32_t>& joined) const;
  bool IsLacked(int32_t rank, const std::vector<uint8_t>& sent) const;
  std::string TensorLines(const std::set<int32_t>& joined) const;

  const int32_t num_workers_;
  const uint64_t id_;
  const int64_t begin_ns_;
  int64_t asked_ns_ = 0;
  std::map<int32_t, StallQuery> queries_;   // by rank
  std::vector<Waiting> waiting_;            // that was asked for
  std::map<int32_t, StallAnswer> answers_;  // by rank
};

}  // namespace byteps

// StallReport: what a worker says about tensors that wait for other workers.
#ifndef TF_BYTEPS_CC_WORKER_STALL_REPORT_H_
#define TF_BYTEPS_CC_WORKER_STALL_REPORT_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cc/base/tensor_description.h"
#include "cc/wire/control.h"

namespace byteps {

// Not thread-safe.
class StallReport {
 public:
  struct Waiting {
    TensorDescription tensor;
    uint64_t round = 0;
    int64_t since_ns = 0;
  };

  // `more`: how many tensors wait besides those in `waiting`. `query_id` is that of the StallQuery
  // about them, whose answers belong here.
  StallReport(int32_t rank, int32_t num_workers, uint64_t query_id, std::vector<Waiting> waiting,
              size_t more, int64_t begin_ns);

  // Ignores answers to other queries.
  void Add(const StallAnswer& answer);

  // All workers have answered.
  bool IsComplete() const { return answers_.size() == static_cast<size_t>(num_workers_); }
  int64_t begin_ns() const { return begin_ns_; }

  std::string Text(int64_t now_ns) const;

 private:
  std::string WhoHasSent(size_t index) const;

  const int32_t rank_;
  const int32_t num_workers_;
  const uint64_t query_id_;
  const std::vector<Waiting> waiting_;
  const size_t more_;
  const int64_t begin_ns_;
  std::map<int32_t, StallAnswer> answers_;  // by rank
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_WORKER_STALL_REPORT_H_

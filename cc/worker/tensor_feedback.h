// TensorFeedback: the error feedback of a tensor that a worker pushes with a codec that wants it.
#ifndef TF_BYTEPS_CC_WORKER_TENSOR_FEEDBACK_H_
#define TF_BYTEPS_CC_WORKER_TENSOR_FEEDBACK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/codec/error_feedback.h"
#include "cc/wire/control.h"

namespace byteps {

// Of one codec, and of parts of fixed lengths. Lives as long as its worker, or an exchange that
// uses it.
class TensorFeedback {
 public:
  explicit TensorFeedback(const TableEntry& entry);

  // Whether the tensor still has this codec and these parts.
  bool IsOf(const TableEntry& entry) const;

  // Thread-safe.
  ErrorFeedback& part(uint32_t part) { return parts_[part]; }

 private:
  const std::string codec_;
  const std::vector<uint64_t> lengths_;
  std::vector<ErrorFeedback> parts_;
};

// Makes `feedback` that of the tensor, null if its codec wants none. What is not of the same codec
// and parts begins at zero, as does all in a new membership epoch; the log says so.
void RenewFeedback(const TableEntry& entry, uint32_t epoch,
                   std::shared_ptr<TensorFeedback>* feedback);

}  // namespace byteps

#endif  // TF_BYTEPS_CC_WORKER_TENSOR_FEEDBACK_H_

// TensorFeedback: the error feedback of a tensor that a worker pushes with a codec that wants it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/codec/error_feedback.h"
#include "cc/wire/control.h"
#include "cc/worker/state/residual.h"

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

  // Thread-safe; of rounds that have left.
  Residual residual() const;
  // Begins with it, before anything is encoded; false if it is of another codec or length.
  bool Begin(const Residual& residual);

 private:
  const std::string codec_;
  const std::vector<uint64_t> lengths_;
  std::vector<ErrorFeedback> parts_;
};

// Makes `feedback` that of the tensor, null if its codec wants none. Other parts take over what
// there was; what is of another codec begins at zero, as does all in a new membership epoch; the
// log says so.
//
// `restored` may be null, or what was kept of the tensor: it goes on with that, in place of what
// there is, and takes it. What does not fit is dropped, and the log says so once for all tensors. A
// tensor that is raw, as before a codec's start step, leaves it for later.
void RenewFeedback(const TableEntry& entry, uint32_t epoch,
                   std::shared_ptr<TensorFeedback>* feedback, std::unique_ptr<Residual>* restored);

}  // namespace byteps

// ContributionForm: how this worker sends the elements of a tensor: the codec that its caller
// wants, or the narrow form that its values happen to fit in.
#pragma once

#include <atomic>
#include <cstdint>

#include "cc/base/job.h"
#include "cc/base/status.h"
#include "cc/base/tensor_description.h"
#include "cc/codec/block_codec.h"

namespace byteps {

// Thread-safe, without a lock: the description of the job does not change, and the one thing that
// is learned is a flag. Nothing blocks.
class ContributionForm {
 public:
  // `job` outlives it.
  explicit ContributionForm(const JobDescription& job);

  // Gives the codec its full name; empty where the tensor is sent as it is. `start_step`: the round
  // it begins with. All workers choose alike: what differs, they find out when they exchange the
  // tensor.
  Status ChooseCodec(TensorDescription* tensor, uint64_t* start_step) const;

  // How to send these elements of the tensor in fewer bytes, see codec/narrow.h; null: as they are.
  const BlockCodec* NarrowFormOf(const TensorDescription& tensor, const void* input,
                                 uint64_t elements) const;

  // What the link carries has been measured.
  void NoteLink(uint64_t bytes_per_second);

 private:
  const JobDescription& job_;
  const bool can_be_narrow_;
  std::atomic<bool> may_be_narrow_;  // once links are known to be slower than kFastLink
};

}  // namespace byteps

// PartForms: the forms in which the parts of a tensor travel, up as contributions and down as sums.
//
// Both ends know them from the tensor's description and a part's number of elements, so that the
// bytes of a frame can be checked before they come (protocol rule 2).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "cc/base/status.h"
#include "cc/base/tensor_description.h"
#include "cc/codec/block_codec.h"

namespace byteps {

class PartForms {
 public:
  PartForms(std::unique_ptr<BlockCodec> push, std::unique_ptr<BlockCodec> sum)
      : push_(std::move(push)), sum_(std::move(sum)) {}

  // For a part of so many elements; null: raw. So are parts that would not get shorter.
  const BlockCodec* push(uint64_t elements) const { return Shorter(push_.get(), elements); }
  const BlockCodec* sum(uint64_t elements) const { return Shorter(sum_.get(), elements); }

  // Of the contributions: see Codec.
  bool wants_feedback() const { return push_ != nullptr && push_->wants_feedback(); }

 private:
  static const BlockCodec* Shorter(const BlockCodec* codec, uint64_t elements) {
    const bool is_shorter =
        codec != nullptr && codec->EncodedBytes(elements) < elements * sizeof(float);
    return is_shorter ? codec : nullptr;
  }

  const std::unique_ptr<BlockCodec> push_;  // null: raw
  const std::unique_ptr<BlockCodec> sum_;
};

// The form of a contribution whose frame has the codec `id`: that of the tensor, or a narrow one
// (codec/narrow.h); null: raw. False if contributions of so many elements are never in `id`.
bool FindPushForm(const TensorDescription& tensor, uint64_t elements, CodecId id,
                  const BlockCodec** form);

// Those of a tensor; they live for ever. Raw for a codec that CheckCodec refuses. Thread-safe.
const PartForms& FormsOf(const TensorDescription& tensor);

// Sets `name` to the full name of a tensor's codec in a job of so many workers. INVALID_ARGUMENT as
// ParseCodec, and if they are too many for it.
Status NameCodecInJob(const TensorDescription& tensor, int32_t num_workers, std::string* name);

// Refuses a tensor with a codec that is not known or does not have its full name.
Status CheckCodec(const TensorDescription& tensor);

}  // namespace byteps

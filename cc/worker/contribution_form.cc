#include "cc/worker/contribution_form.h"

#include <utility>

#include "cc/base/members.h"
#include "cc/codec/choice.h"
#include "cc/codec/narrow.h"
#include "cc/codec/part_forms.h"

namespace byteps {
namespace {

// Bytes in a second. Over faster links CPUs take as long to narrow a tensor as that saves.
constexpr uint64_t kFastLink = 625'000'000;

// Not a link that is not known yet: at 100 Gbit/s narrow gradients make a step longer by half.
bool IsSlow(uint64_t bytes_per_second) {
  return bytes_per_second > 0 && bytes_per_second <= kFastLink;
}

}  // namespace

ContributionForm::ContributionForm(const JobDescription& job)
    : job_(job),
      can_be_narrow_(job.options.compression.narrow &&
                     job.options.network.transport == Transport::kTcp && job.HasLinks()),
      may_be_narrow_(can_be_narrow_ && IsSlow(job.options.flow.link_bytes_per_second)) {}

Status ContributionForm::ChooseCodec(TensorDescription* tensor, uint64_t* start_step) const {
  if (tensor->codec.empty()) return OkStatus();
  CodecChoice choice;
  Status status = ParseChoice(tensor->codec, &choice);
  if (status.ok() && choice.codec != kAutoCodec) {
    tensor->codec = choice.codec;
    const int32_t num_workers = Members::Of(tensor->name).Count(job_.num_workers());
    status = NameCodecInJob(*tensor, num_workers, &choice.codec);
  }
  if (!status.ok())
    return Status(status.code(), "tensor \"" + tensor->name + "\": " + status.message());
  tensor->codec = std::move(choice.codec);
  *start_step = choice.start_step;
  // What cannot be compressed is refused at any length.
  BYTEPS_RETURN_IF_ERROR(tensor->Validate(job_.num_workers()));
  const bool is_sum = tensor->kind == ExchangeKind::kSum;
  if (is_sum && tensor->ByteCount() < job_.options.compression.min_compress_bytes)
    tensor->codec.clear();
  return OkStatus();
}

const BlockCodec* ContributionForm::NarrowFormOf(const TensorDescription& tensor, const void* input,
                                                 uint64_t elements) const {
  const bool is_long = tensor.ByteCount() >= job_.options.compression.min_compress_bytes;
  if (!may_be_narrow_ || input == nullptr || !is_long || !MayBeNarrow(tensor)) return nullptr;
  return byteps::NarrowFormOf(static_cast<const float*>(input), elements);
}

void ContributionForm::NoteLink(uint64_t bytes_per_second) {
  may_be_narrow_ = can_be_narrow_ && IsSlow(bytes_per_second);
}

}  // namespace byteps

// A worker that is alone on its host: it has nothing to reduce.
#include <utility>

#include "cc/staging/host_stages.h"

namespace byteps {
namespace {

// What is copied out at a time: 0.1 ms of a GPU's link.
constexpr size_t kBytesTogether = 4 << 20;

}  // namespace

// Parts are copied several at a time: a call of CUDA's has to wait for those by which TensorFlow
// puts its own work on the GPU.
void HostStages::StartAlone(const TensorPointer& tensor) {
  const auto count = tensor->part_count();
  if (tensor->gpu.tensor.kind == ExchangeKind::kBroadcast) {
    for (uint32_t part = 0; part < count; ++part) Reduce(tensor, part, /*for_all=*/false);
    return;
  }
  std::vector<std::vector<PartPointer>> groups;
  size_t bytes = 0;
  bool is_decoded = false;
  for (uint32_t number = 0; number < count; ++number) {
    PartPointer part = NewPart(tensor, number, place_, device_);
    is_decoded = is_decoded || part->sum_form.codec != CodecId::kRaw;
    const bool begins_group = groups.empty() || bytes + part->encoded.bytes > kBytesTogether ||
                              (part->is_encoded() && groups.back().size() == kPartsTogether);
    if (begins_group) {
      groups.emplace_back();
      bytes = 0;
    }
    bytes += part->encoded.bytes;
    groups.back().push_back(std::move(part));
  }
  // What the device decodes comes as it is or encoded, which is known too late for a stream.
  tensor->is_copied_by_stream = tensor->on_submitted != nullptr && !is_decoded;
  if (tensor->input_ready != nullptr) {
    const Status status = device_->StartCopiesAfterEvent(tensor->input_ready);
    if (!status.ok()) return events_.Fail(status);
  }
  for (const std::vector<PartPointer>& group : groups) CopyOut(group);
  results_.SetOnSubmitted(tensor);
}

}  // namespace byteps

// A worker that is alone on its host: it has nothing to reduce.
#include <new>
#include <utility>

#include "cc/base/round_up.h"
#include "cc/staging/local_group.h"

namespace byteps {
namespace {

// What is copied out at a time: 0.1 ms of a GPU's link.
constexpr size_t kBytesTogether = 4 << 20;
constexpr size_t kCacheLineBytes = 64;

}  // namespace

// Parts are copied several at a time: a call of CUDA's has to wait for those by which TensorFlow
// puts its own work on the GPU.
void LocalGroup::StartAlone(const TensorPointer& tensor) {
  const auto count = tensor->part_count();
  if (tensor->gpu.tensor.kind == ExchangeKind::kBroadcast) {
    for (uint32_t part = 0; part < count; ++part) StartReduce(tensor, part, /*for_all=*/false);
    return;
  }
  std::vector<std::vector<PartPointer>> groups;
  size_t bytes = 0;
  bool is_decoded = false;
  for (uint32_t number = 0; number < count; ++number) {
    PartPointer part = NewPart(tensor, number, place_, device_.get());
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
    if (!status.ok()) return Fail(status);
  }
  for (const std::vector<PartPointer>& group : groups) CopyOut(group);
  SetOnSubmitted(tensor);
}

Status LocalGroup::TakeOutput(const std::vector<PartPointer>& parts, size_t bytes,
                              PinnedPool::Block* output) {
  const PartPointer& first = parts.front();
  const TensorPointer& tensor = first->tensor;
  if (!tensor->is_copied_by_stream) return device_->pinned_pool().Take(bytes, output);
  const size_t until_word = RoundUp(bytes, kCacheLineBytes);
  BYTEPS_RETURN_IF_ERROR(device_->pinned_pool().Take(until_word + sizeof(ArrivalWord), output));
  const auto arrival = std::make_shared<StagedArrival>();
  arrival->memory = *output;
  arrival->bytes = bytes;
  arrival->offset = tensor->exchange->PartOffset(first->number);
  arrival->words = new (static_cast<char*>(output->get()) + until_word) ArrivalWord(0);
  arrival->parts_left = parts.size();
  for (const PartPointer& part : parts) part->arrival = arrival;
  std::lock_guard<std::mutex> lock(mutex_);
  tensor->arrivals.push_back(arrival);
  return OkStatus();
}

}  // namespace byteps

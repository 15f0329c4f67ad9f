#include "cc/staging/one_host_stages.h"

namespace byteps {

// Reductions, or one broadcast.
void OneHostStages::Start(const std::vector<TensorPointer>& tensors) {
  std::vector<TensorPointer> some;
  for (const TensorPointer& tensor : tensors) {
    const bool is_there = place_.alone() && tensor->gpu.input == tensor->gpu.output;
    if (is_there || tensor->gpu.tensor.ElementCount() == 0)
      OnExchanged(tensor);
    else if (events_.BeginStep(tensor))
      some.push_back(tensor);
  }
  if (some.empty()) return;
  const auto ended = [this, some](const Status& status) {
    events_.Hold();  // those of the next step, whose turn it is now
    for (const TensorPointer& tensor : some)
      events_.EndStep(tensor, status, [this, tensor] { OnExchanged(tensor); });
    events_.Release();
  };
  steps_.Launch([&](const RankDevice::Done& done) { return StartCollective(some, done); }, ended);
}

Status OneHostStages::StartCollective(const std::vector<TensorPointer>& tensors,
                                      const RankDevice::Done& done) {
  std::vector<Reduction> reductions;
  std::vector<DeviceSpan> spans;
  DeviceEvent last;
  for (const TensorPointer& tensor : tensors) {
    const TensorDescription& description = tensor->gpu.tensor;
    spans.push_back({tensor->gpu.input, tensor->gpu.output,
                     static_cast<size_t>(description.ElementCount()), description.dtype});
    const NcclOperation operation =
        description.average ? NcclOperation::kAverage : OperationOf(description);
    reductions.push_back({spans.back(), operation});
    if (tensor->input_ready != nullptr && tensor->input_ready != last) {
      last = tensor->input_ready;
      BYTEPS_RETURN_IF_ERROR(device_->StartAfterEvent(last));
    }
  }
  const TensorDescription& first = tensors.front()->gpu.tensor;
  if (place_.alone())
    BYTEPS_RETURN_IF_ERROR(device_->CopyWithin(spans, done));
  else if (first.kind == ExchangeKind::kBroadcast)
    BYTEPS_RETURN_IF_ERROR(
        device_->Broadcast(spans.front(), place_.hosts.LocalRank(first.root_rank), done));
  else
    BYTEPS_RETURN_IF_ERROR(device_->AllReduce(reductions, done));
  DeviceEvent end;
  for (const TensorPointer& tensor : tensors) {
    if (tensor->on_submitted == nullptr) continue;
    if (end == nullptr && !device_->RecordEnd(&end).ok()) break;
    tensor->on_submitted(end);
  }
  return OkStatus();
}

void OneHostStages::OnExchanged(const TensorPointer& tensor) {
  const auto parts = tensor->part_count();
  for (uint32_t part = 0; part < parts; ++part) {
    worker_->NoteStage(tensor->exchange, part, &PartTrace::reduce_ns);
    events_.EndPart(tensor);
  }
}

// Each rank broadcasts its rows to where they belong. The result's memory is
// new, and free only behind what TensorFlow's stream holds now.
void OneHostStages::Gather(const TensorPointer& tensor, const std::vector<int64_t>& rows) {
  ExchangeRequest& gpu = tensor->gpu;
  gpu.output = gpu.allocate_output(rows);
  Status status;
  if (gpu.output == nullptr)
    status = ResourceExhausted(tensor->exchange->Name() + ": no GPU memory for the gathered rows");
  if (status.ok()) status = device_->StartAfter(tensor->stream);
  // The others wait for this rank's rows.
  if (!status.ok()) return events_.Fail(status);
  events_.SetParts(tensor, static_cast<uint32_t>(rows.size()));
  DeviceSpan span;
  span.from = gpu.input;
  span.to = gpu.output;
  span.dtype = gpu.tensor.dtype;
  for (size_t rank = 0; rank < rows.size(); ++rank) {
    span.count = rows[rank] * gpu.tensor.ElementCount();
    const auto start = [&](const RankDevice::Done& done) {
      if (place_.alone()) return device_->CopyWithin({span}, done);
      return device_->Broadcast(span, static_cast<int32_t>(rank), done);
    };
    const auto next = [this, tensor] { events_.EndPart(tensor); };
    span.count == 0 ? next() : steps_.Step(tensor, start, next);
    span.to = static_cast<char*>(span.to) + span.bytes();
  }
}

}  // namespace byteps

#include "cc/staging/host_stages.h"

#include <utility>

namespace byteps {

HostStages::HostStages(Worker* worker, RankDevice* device, const HostPlace& place,
                       StageEvents* events, DeviceSteps* steps, StreamResults* results,
                       WorkThreads* launcher)
    : worker_(worker),
      device_(device),
      place_(place),
      events_(*events),
      steps_(*steps),
      results_(*results),
      launcher_(*launcher),
      decodes_([this](const std::vector<PartPointer>& parts) { Decode(parts); }),
      // As many as move what they have encoded.
      encoders_("byteps-encode", worker->job().options.network.io_threads) {}

// All up to the copy to the host is put on the GPU's streams here, before any stream waits for the
// result (stream_results.h).
void HostStages::Reduce(const TensorPointer& tensor, uint32_t number, bool for_all) {
  Status status;
  if (number == 0 && for_all) status = results_.PlaceShared(tensor);
  if (number == 0 && status.ok() && tensor->input_ready != nullptr)
    status = device_->StartAfterEvent(tensor->input_ready);
  if (!status.ok()) return events_.Fail(status);
  const PartPointer part = NewPart(tensor, number, place_, device_);
  if (for_all && !results_.SetArrival(part)) return;
  ReducePart(part);
  if (place_.OwnerOf(tensor->exchange->entry->key, number) == place_.local_rank) {
    DeviceEvent reduced;
    status = device_->RecordEnd(&reduced);
    if (status.ok()) status = device_->StartCopiesAfterEvent(reduced);
    if (!status.ok()) return events_.Fail(status);
    CopyOut({part});
  }
  if (number + 1 == tensor->part_count()) results_.SetOnSubmitted(tensor);
}

void HostStages::ReducePart(const PartPointer& part) {
  const TensorPointer& tensor = part->tensor;
  const TensorDescription& description = tensor->gpu.tensor;
  const bool is_broadcast = description.kind == ExchangeKind::kBroadcast;
  const DeviceSpan& span = part->span;
  const auto start = [&](const RankDevice::Done& done) {
    if (place_.alone()) return device_->CopyWithin({span}, done);
    if (is_broadcast)
      return device_->Broadcast(span, place_.hosts.LocalRank(description.root_rank), done);
    return device_->Reduce(span, OperationOf(description),
                           place_.OwnerOf(tensor->exchange->entry->key, part->number), done);
  };
  const auto next = [this, part] {
    if (place_.alone()) return;
    if (part->tensor->input_ready != nullptr) NoteComputed(part);
    worker_->NoteStage(part->tensor->exchange, part->number, &PartTrace::reduce_ns);
  };
  const bool is_nothing = span.count == 0 || (is_broadcast && !part->sends);
  is_nothing ? next() : steps_.Step(tensor, start, next);
}

void HostStages::NoteComputed(const PartPointer& part) {
  worker_->NoteInput(part->tensor->exchange);
  worker_->NoteStage(part->tensor->exchange, part->number, &PartTrace::computed_ns);
}

void HostStages::CopyOut(const std::vector<PartPointer>& parts) {
  const StagedPart& first = *parts.front();
  size_t bytes = 0;  // of results, which may come as they are
  size_t input_bytes = 0;
  std::vector<DevicePart> encoded;
  bool is_encoded = false;
  for (const PartPointer& part : parts) {
    bytes += part->span.bytes();
    input_bytes += part->encoded.bytes;
    encoded.push_back(part->encoded);
    is_encoded = is_encoded || part->is_encoded();
  }
  PinnedPool::Block input, output;
  Status status;
  if (bytes > 0 && first.sends) status = device_->pinned_pool().Take(input_bytes, &input);
  if (bytes > 0 && status.ok() && first.receives && first.arrival == nullptr)
    status = results_.TakeOutput(parts, bytes, &output);
  if (!status.ok()) return events_.OnError(first.tensor, status);
  size_t offset = 0;
  size_t input_offset = 0;
  for (const PartPointer& part : parts) {
    const auto within = [](const PinnedPool::Block& block, size_t at) {
      return block ? PinnedPool::Block(block, static_cast<char*>(block.get()) + at) : nullptr;
    };
    part->input = within(input, input_offset);
    if (output != nullptr) part->output = within(output, offset);
    input_offset += part->encoded.bytes;
    offset += part->span.bytes();
  }
  const auto next = [this, parts] {
    for (const PartPointer& part : parts) {
      if (part->input != nullptr) OnCopiedOut(part);
      if (part->MustBeEncoded()) {
        encoders_.Add([this, part] { Send(part); });
      } else {
        Send(part);
      }
    }
  };
  if (input == nullptr) return next();
  const auto start = [&](const RankDevice::Done& done) {
    return is_encoded ? device_->EncodeToHost(encoded, input.get(), done)
                      : device_->CopyToHost(first.reduced, input.get(), bytes, done);
  };
  steps_.Step(first.tensor, start, next);
}

void HostStages::OnCopiedOut(const PartPointer& part) {
  const std::shared_ptr<Exchange>& exchange = part->tensor->exchange;
  if (place_.alone() && part->tensor->input_ready != nullptr) NoteComputed(part);
  worker_->NoteStage(exchange, part->number, &PartTrace::copy_out_ns);
}

void HostStages::Send(const PartPointer& part) {
  PartRequest request;
  request.part = part->number;
  request.input = part->input.get();
  request.output = part->output.get();
  // Not the part itself, which keeps the exchange.
  request.keep_input = part->input;
  request.keep_output = part->output;
  request.input_is_encoded = part->is_encoded();
  request.takes_encoded = part->sum_form.codec != CodecId::kRaw;
  request.done = [this, part](bool is_encoded) { OnReply(part, is_encoded); };
  worker_->SendPart(part->tensor->exchange, std::move(request));
}

// Called by a thread that brings results.
void HostStages::OnReply(const PartPointer& part, bool is_encoded) {
  if (part->arrival != nullptr) return events_.OnArrived(part->arrival.get());
  if (!part->IsDecoded()) return launcher_.Add([this, part] { CopyIn(part); });
  if (!is_encoded) part->sum_form = DeviceForm();
  decodes_.Add(part);
}

void HostStages::CopyIn(const PartPointer& part) {
  if (part->output == nullptr) return OnCopiedIn(part);
  const DeviceSpan& span = part->span;
  const auto start = [&](const RankDevice::Done& done) {
    return device_->CopyToDevice(part->output.get(), span.to, span.bytes(), done);
  };
  steps_.Step(part->tensor, start, [this, part] { OnCopiedIn(part); });
}

// What is launched together ends together.
void HostStages::Decode(const std::vector<PartPointer>& parts) {
  std::vector<PartPointer> begun;
  std::vector<ArrivedPart> arrived;
  for (const PartPointer& part : parts) {
    if (!events_.BeginStep(part->tensor)) continue;
    begun.push_back(part);
    arrived.push_back({part->output.get(), part->sum_form, part->span.count, part->span.to});
  }
  if (begun.empty()) return;
  const auto start = [&](const RankDevice::Done& done) {
    return device_->DecodeToDevice(arrived, done);
  };
  steps_.Launch(start, [this, begun](const Status& status) {
    events_.Hold();  // what is reported of them goes together
    for (const PartPointer& part : begun)
      events_.EndStep(part->tensor, status, [this, part] { OnCopiedIn(part); });
    events_.Release();
  });
}

void HostStages::OnCopiedIn(const PartPointer& part) {
  if (part->output != nullptr)
    worker_->NoteStage(part->tensor->exchange, part->number, &PartTrace::copy_in_ns);
  if (place_.alone()) return events_.EndPart(part->tensor);
  events_.OnReplied(part->tensor, part->number);
}

void HostStages::Broadcast(const TensorPointer& tensor, uint32_t part) {
  DeviceSpan span = SpanOf(*tensor, part);
  span.from = span.to;
  const auto next = [this, tensor, part] {
    worker_->NoteStage(tensor->exchange, part, &PartTrace::broadcast_ns);
    events_.EndPart(tensor);
  };
  const TensorDescription& description = tensor->gpu.tensor;
  const bool has_it =
      description.kind == ExchangeKind::kBroadcast && place_.RootIsHere(description);
  if (span.count == 0 || has_it) return events_.EndPart(tensor);
  const auto start = [&](const RankDevice::Done& done) {
    return device_->Broadcast(span, place_.OwnerOf(tensor->exchange->entry->key, part), done);
  };
  steps_.Step(tensor, start, next);
}

}  // namespace byteps

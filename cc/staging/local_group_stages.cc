// What happens to a tensor between Enqueue and its end; see local_group.h for the stages.
#include <utility>

#include "cc/staging/device_forms.h"
#include "cc/staging/local_group_part.h"

namespace byteps {

void LocalGroup::Enqueue(CudaStreamHandle stream, std::vector<DeviceRequest> together) {
  // Before the inputs: exchanges of the same names may have to end first.
  RecordCopied(stream);
  std::vector<TensorPointer> tensors;
  Hold();
  for (DeviceRequest& request : together) {
    if (TensorPointer tensor = NewTensor(stream, std::move(request)))
      tensors.push_back(std::move(tensor));
  }
  const Status status = WhenComputed(stream, tensors);
  for (const TensorPointer& tensor : tensors)
    status.ok() ? PlaceInTurn(tensor) : FinishTensor(tensor, status);
  Release();
}

LocalGroup::TensorPointer LocalGroup::NewTensor(CudaStreamHandle stream, DeviceRequest request) {
  Status status = failure();
  if (status.ok() && !CanExchange(request.request.tensor)) {
    status = InvalidArgument("tensor \"" + request.request.tensor.name +
                             "\": the GPUs of several hosts do not gather rows");
  }
  if (!status.ok()) {
    request.request.done(status);
    return nullptr;
  }
  auto tensor = std::make_shared<Tensor>();
  tensor->gpu = std::move(request.request);
  tensor->stream = stream;
  if (StreamCanWait(tensor->gpu.tensor)) tensor->on_submitted = std::move(request.on_submitted);
  return tensor;
}

// Those whose caller's stream waits by itself only get an event of it.
Status LocalGroup::WhenComputed(CudaStreamHandle stream,
                                const std::vector<TensorPointer>& tensors) {
  DeviceEvent event;
  std::vector<TensorPointer> awaited;
  for (const TensorPointer& tensor : tensors) {
    if (tensor->on_submitted == nullptr) {
      awaited.push_back(tensor);
      continue;
    }
    if (event == nullptr) BYTEPS_RETURN_IF_ERROR(device_->RecordEvent(stream, &event));
    tensor->input_ready = event;
    tensor->computed = true;
  }
  if (awaited.empty()) return OkStatus();
  return device_->WhenComputed(stream, [this, awaited](const Status& result) {
    Hold();
    for (const TensorPointer& tensor : awaited) OnComputed(tensor, result);
    Release();
  });
}

void LocalGroup::OnComputed(const TensorPointer& tensor, const Status& status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    tensor->computed = true;
  }
  // Without its device no rank can count on this one any more.
  status.ok() ? ReportIfReady(tensor) : Fail(status);
}

void LocalGroup::ReportIfReady(const TensorPointer& tensor) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const bool ready = tensor->exchange != nullptr && tensor->computed;
    if (!ready || tensor->reported || !tensor->failure.ok() || tensor->finished) return;
    tensor->reported = true;
  }
  const auto parts = static_cast<uint32_t>(tensor->exchange->entry->parts.size());
  // Otherwise it is not computed before it is copied out (OnCopiedOut).
  if (tensor->input_ready == nullptr || results_from_ == ResultsFrom::kCollective) {
    worker_->NoteInput(tensor->exchange);
    for (uint32_t part = 0; part < parts; ++part)
      worker_->NoteStage(tensor->exchange, part, &PartTrace::computed_ns);
  }
  if (!alone()) {
    return ReportTensor(LaunchReport::Kind::kReady, *tensor->exchange, 0, OkStatus(),
                        TakesShared(tensor));
  }
  if (tensor->gpu.tensor.kind == ExchangeKind::kGather)
    return StartGather(tensor, {tensor->gpu.gather_rows});
  if (results_from_ != ResultsFrom::kCollective) return StartAlone(tensor);
  Hold();
  {
    std::lock_guard<std::mutex> lock(held_mutex_);
    held_tensors_.push_back(tensor);
  }
  Release();
}

// The worker has ended the exchange: by FinishTensor, or because it failed.
void LocalGroup::OnEnded(const TensorPointer& tensor, const Status& status) {
  if (status.ok()) return;
  bool by_itself = false;
  bool connected = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (tensor->finished || !tensor->failure.ok()) return;
    by_itself = alone() || tensor->exchange == nullptr || !failure_.ok();
    connected = connected_;
  }
  if (by_itself) return FailTensor(tensor, status);
  // It fails on all ranks, at one point of the log; without connections, nothing can go on.
  if (!connected) return Fail(status);
  ReportTensor(LaunchReport::Kind::kFailed, *tensor->exchange, 0, status);
}

bool LocalGroup::BeginStep(const TensorPointer& tensor) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!tensor->failure.ok()) return false;  // its memory may be gone
  ++tensor->at_work;
  return true;
}

void LocalGroup::EndStep(const TensorPointer& tensor, const Status& status,
                         const std::function<void()>& next) {
  bool failed = false;
  bool last = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    last = --tensor->at_work == 0;
    failed = !tensor->failure.ok();
    // Fail is about to end it. An aborted collective ends, too, and a copy of what it has left must
    // not go to servers.
    if (!failed && !failure_.ok()) return;
  }
  if (failed) {
    if (last) FinishTensor(tensor, tensor->failure);
    return;
  }
  if (!status.ok()) return Fail(status);
  next();
  FinishIfDone(tensor);
}

void LocalGroup::Step(const TensorPointer& tensor, const StartStep& start,
                      std::function<void()> next) {
  if (!BeginStep(tensor)) return;
  const auto ended = [this, tensor, next = std::move(next)](const Status& status) {
    EndStep(tensor, status, next);
  };
  Launch(start, ended);
}

void LocalGroup::Launch(const StartStep& start, const RankDevice::Done& ended) {
  const Status status = start(ended);
  if (status.ok()) return;
  // The device is broken: no rank can count on this one any more.
  Fail(status);
  ended(status);
}

DeviceSpan LocalGroup::SpanOf(const Tensor& tensor, uint32_t part) const {
  const uint64_t offset = tensor.exchange->PartOffset(part);
  DeviceSpan span;
  span.from = static_cast<const char*>(tensor.gpu.input) + offset;
  span.to = static_cast<char*>(tensor.gpu.output) + offset;
  span.count = tensor.exchange->entry->parts[part].element_count;
  span.dtype = tensor.gpu.tensor.dtype;
  return span;
}

NcclOperation LocalGroup::OperationOf(const TensorDescription& tensor) {
  switch (tensor.kind) {
    case ExchangeKind::kMin:
      return NcclOperation::kMin;
    case ExchangeKind::kMax:
      return NcclOperation::kMax;
    case ExchangeKind::kProduct:
      return NcclOperation::kProduct;
    default:
      return NcclOperation::kSum;
  }
}

bool LocalGroup::RootIsHere(const TensorDescription& tensor) const {
  if (!shares_host_) return tensor.root_rank == worker_->rank();
  return hosts_.HostOf(tensor.root_rank) == hosts_.HostOf(worker_->rank());
}

int32_t LocalGroup::OwnerOf(const Tensor& tensor, uint32_t part) const {
  return LocalOwner(tensor.exchange->entry->key, part, local_size_);
}

LocalGroup::PartPointer LocalGroup::NewPart(const TensorPointer& tensor, uint32_t number) const {
  const auto part = std::make_shared<Part>();
  part->tensor = tensor;
  part->number = number;
  part->span = SpanOf(*tensor, number);
  // The result's memory holds the host's sum meanwhile.
  part->reduced = alone() ? part->span.from : part->span.to;
  if (tensor->gpu.tensor.kind == ExchangeKind::kBroadcast) {
    part->sends = RootIsHere(tensor->gpu.tensor);
    part->receives = !part->sends;
  }
  ChooseForms(part.get());
  return part;
}

// Where the device has the codecs, only what travels is copied. A codec with error feedback needs
// what is in the worker's memory.
void LocalGroup::ChooseForms(Part* part) const {
  const Exchange& exchange = *part->tensor->exchange;
  part->encoded.values = part->reduced;
  part->encoded.elements = part->span.count;
  part->encoded.bytes = part->span.bytes();
  const PartSeed seed = exchange.PushSeed(part->number, worker_->rank());
  const BlockCodec* const push = exchange.forms->push(part->span.count);
  const DeviceForm form = DeviceFormOf(push, seed);
  if (!exchange.forms->wants_feedback() && device_->Supports(form)) {
    part->encoded.form = form;
    part->encoded.bytes = push->EncodedBytes(part->span.count);
  }
  part->sum_form = SumFormOf(exchange, part->number);
}

DeviceForm LocalGroup::SumFormOf(const Exchange& exchange, uint32_t part) const {
  const PartSeed seed = exchange.PushSeed(part, worker_->rank());
  const DeviceForm form = DeviceFormOf(exchange.SumCodec(part), seed);
  return device_->Supports(form) ? form : DeviceForm();
}

// All up to the copy to the host is put on the GPU's streams here, before any stream waits for the
// result (local_group_arrivals.cc).
void LocalGroup::StartReduce(const TensorPointer& tensor, uint32_t number, bool for_all) {
  Status status;
  if (number == 0 && for_all) status = PlaceShared(tensor);
  if (number == 0 && status.ok() && tensor->input_ready != nullptr)
    status = device_->StartAfterEvent(tensor->input_ready);
  if (!status.ok()) return Fail(status);
  const PartPointer part = NewPart(tensor, number);
  if (for_all && !SetArrival(part)) return;
  Reduce(part);
  if (OwnerOf(*tensor, number) == local_rank_) {
    DeviceEvent reduced;
    status = device_->RecordEnd(&reduced);
    if (status.ok()) status = device_->StartCopiesAfterEvent(reduced);
    if (!status.ok()) return Fail(status);
    CopyOut({part});
  }
  if (number + 1 == tensor->exchange->entry->parts.size()) SetOnSubmitted(tensor);
}

void LocalGroup::Reduce(const PartPointer& part) {
  const TensorPointer& tensor = part->tensor;
  const TensorDescription& description = tensor->gpu.tensor;
  const bool is_broadcast = description.kind == ExchangeKind::kBroadcast;
  const DeviceSpan& span = part->span;
  const auto start = [&](const RankDevice::Done& done) {
    if (alone()) return device_->CopyWithin({span}, done);
    if (is_broadcast)
      return device_->Broadcast(span, hosts_.LocalRank(description.root_rank), done);
    return device_->Reduce(span, OperationOf(description), OwnerOf(*tensor, part->number), done);
  };
  const auto next = [this, part] {
    if (alone()) return;
    if (part->tensor->input_ready != nullptr) NoteComputed(part);
    worker_->NoteStage(part->tensor->exchange, part->number, &PartTrace::reduce_ns);
  };
  const bool is_nothing = span.count == 0 || (is_broadcast && !part->sends);
  is_nothing ? next() : Step(tensor, start, next);
}

void LocalGroup::NoteComputed(const PartPointer& part) {
  worker_->NoteInput(part->tensor->exchange);
  worker_->NoteStage(part->tensor->exchange, part->number, &PartTrace::computed_ns);
}

void LocalGroup::CopyOut(const std::vector<PartPointer>& parts) {
  const Part& first = *parts.front();
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
    status = TakeOutput(parts, bytes, &output);
  if (!status.ok()) return OnEnded(first.tensor, status);
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
  Step(first.tensor, start, next);
}

void LocalGroup::OnCopiedOut(const PartPointer& part) {
  const std::shared_ptr<Exchange>& exchange = part->tensor->exchange;
  if (alone() && part->tensor->input_ready != nullptr) NoteComputed(part);
  worker_->NoteStage(exchange, part->number, &PartTrace::copy_out_ns);
}

void LocalGroup::Send(const PartPointer& part) {
  PartRequest request;
  request.part = part->number;
  request.input = part->input.get();
  request.output = part->output.get();
  // Not the part itself, which keeps the exchange.
  request.keep_input = part->input;
  request.keep_output = part->output;
  request.input_is_encoded = part->is_encoded();
  request.takes_encoded = part->sum_form.codec != CodecId::kRaw;
  request.done = [this, part](bool is_encoded) {
    if (part->arrival != nullptr) return OnArrived(part);
    if (part->IsDecoded()) return DecodeSoon(part, is_encoded);
    launcher_.Add([this, part] { CopyIn(part); });
  };
  worker_->SendPart(part->tensor->exchange, std::move(request));
}

void LocalGroup::CopyIn(const PartPointer& part) {
  if (part->output == nullptr) return OnCopiedIn(part);
  const DeviceSpan& span = part->span;
  const auto start = [&](const RankDevice::Done& done) {
    return device_->CopyToDevice(part->output.get(), span.to, span.bytes(), done);
  };
  Step(part->tensor, start, [this, part] { OnCopiedIn(part); });
}

void LocalGroup::OnCopiedIn(const PartPointer& part) {
  if (part->output != nullptr)
    worker_->NoteStage(part->tensor->exchange, part->number, &PartTrace::copy_in_ns);
  if (alone()) return OnPartDone(part->tensor);
  ReportTensor(LaunchReport::Kind::kReplied, *part->tensor->exchange, part->number, OkStatus());
}

void LocalGroup::StartBroadcast(const TensorPointer& tensor, uint32_t part) {
  DeviceSpan span = SpanOf(*tensor, part);
  span.from = span.to;
  const auto next = [this, tensor, part] {
    worker_->NoteStage(tensor->exchange, part, &PartTrace::broadcast_ns);
    OnPartDone(tensor);
  };
  const TensorDescription& description = tensor->gpu.tensor;
  const bool has_it = description.kind == ExchangeKind::kBroadcast && RootIsHere(description);
  if (span.count == 0 || has_it) return OnPartDone(tensor);
  const auto start = [&](const RankDevice::Done& done) {
    return device_->Broadcast(span, OwnerOf(*tensor, part), done);
  };
  Step(tensor, start, next);
}

void LocalGroup::OnPartDone(const TensorPointer& tensor) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    --tensor->parts_left;
  }
  FinishIfDone(tensor);
}

// A part can be done while a collective of another one still reads the tensor.
void LocalGroup::FinishIfDone(const TensorPointer& tensor) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!tensor->failure.ok() || tensor->parts_left > 0 || tensor->at_work > 0) return;
  }
  FinishTensor(tensor, OkStatus());
}

void LocalGroup::FailTensor(const TensorPointer& tensor, const Status& reason) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (tensor->finished || !tensor->failure.ok()) return;
    tensor->failure = reason;
    ReleaseStream(*tensor);
    if (tensor->at_work > 0) return;
  }
  FinishTensor(tensor, reason);
}

void LocalGroup::FinishTensor(const TensorPointer& tensor, const Status& status) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (tensor->finished) return;
    tensor->finished = true;
    tensor->arrivals.clear();
    if (tensor->exchange != nullptr) {
      const auto it = live_.find(tensor->exchange->entry->key);
      if (it != live_.end() && it->second == tensor) live_.erase(it);
    }
  }
  changed_.notify_all();
  // The name is free before the caller may use it again.
  if (tensor->exchange != nullptr) worker_->End(tensor->exchange, status);
  EndTurn(tensor);
  const auto done = std::move(tensor->gpu.done);
  tensor->gpu.done = nullptr;
  done(status);
  tensor->gpu.drop_input = nullptr;
  tensor->gpu.keep_alive = nullptr;
  if (tensor->has_turn) ContinuePlacing();
}

}  // namespace byteps

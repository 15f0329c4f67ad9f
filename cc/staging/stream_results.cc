#include "cc/staging/stream_results.h"

#include <atomic>
#include <cstring>
#include <new>
#include <string>
#include <utility>

#include "cc/base/clock.h"
#include "cc/base/logging.h"
#include "cc/base/round_up.h"
#include "cc/base/thread.h"

namespace byteps {
namespace {

constexpr int64_t kPollNanos = 1'000'000;
constexpr size_t kCacheLineBytes = 64;

std::string IdentityOf(const NcclUniqueId& id) { return {id.bytes.begin(), id.bytes.end()}; }

void WarnOf(const Status& status) {
  LogWarning(
      "the GPUs' streams cannot wait for servers by themselves, so that compiled steps take "
      "longer: " +
      status.message());
}

}  // namespace

// What the caller's stream waits for.
class StreamResults::Event : public StreamEvent {
 public:
  Event(StreamResults* results, TensorPointer tensor)
      : results_(results), group_(results->events_.Self()), tensor_(std::move(tensor)) {}

  Status MakeStreamWait(CudaStreamHandle stream) override {
    return CopyResult(stream, tensor_->gpu.output);
  }
  Status CopyResult(CudaStreamHandle stream, void* to) override {
    const std::shared_ptr<void> group = group_.lock();
    const TensorPointer tensor = std::move(tensor_);
    return group != nullptr ? results_->MakeStreamWait(tensor, stream, to)
                            : Cancelled("the worker has ended");
  }
  // On a thread of its own: should the group end with this, that waits for its device's threads,
  // one of which may be the caller. It looks for the results now and then: only a program that has
  // failed leaves them.
  void EndByItself() override {
    const auto wait = [results = results_, weak = group_, tensor = std::move(tensor_)] {
      while (tensor != nullptr) {
        const std::shared_ptr<void> group = weak.lock();
        if (group == nullptr || results->EndByItself(tensor)) return;
        SleepFor(kPollNanos);
      }
    };
    Thread("byteps-unawaited", wait).Detach();
  }
  bool IsOfHost() const override { return true; }

 private:
  StreamResults* const results_;  // while there is a group
  const std::weak_ptr<void> group_;
  TensorPointer tensor_;  // until one of these is called, since its memory would stay in use
};

StreamResults::StreamResults(Worker* worker, RankDevice* device, const HostPlace& place,
                             StageEvents* events, DeviceSteps* steps, StreamCopies* copies,
                             WorkThreads* launcher)
    : worker_(worker),
      device_(device),
      place_(place),
      events_(*events),
      steps_(*steps),
      copies_(*copies),
      launcher_(*launcher) {}

SharedFile StreamResults::NewShared(const NcclUniqueId& id) {
  if (place_.is_one_host() || !device_->StreamsWaitForHost()) return {};
  const Status status =
      SharedResults::Create(IdentityOf(id), place_.local_size, device_->pinner(), &shared_);
  if (status.ok()) return shared_->file();
  WarnOf(status);
  return {};
}

bool StreamResults::OpenShared(const GroupInvitation& invitation) {
  if (invitation.results.descriptor < 0 || !device_->StreamsWaitForHost()) return false;
  if (place_.local_rank == 0) return true;
  const Status status = SharedResults::Open(invitation.results, IdentityOf(invitation.id),
                                            place_.local_size, device_->pinner(), &shared_);
  if (!status.ok()) WarnOf(status);
  return status.ok();
}

Status StreamResults::PlaceShared(const TensorPointer& tensor) {
  const Exchange& exchange = *tensor->exchange;
  const uint32_t parts = tensor->part_count();
  SharedResults::Place place;
  BYTEPS_RETURN_IF_ERROR(
      shared_->PlaceOf(exchange.entry->key, tensor->gpu.tensor.ByteCount(), parts, &place));
  std::vector<ArrivalPointer> arrivals;
  for (uint32_t part = 0; part < parts; ++part) {
    const auto arrival = std::make_shared<StagedArrival>();
    arrival->offset = exchange.PartOffset(part);
    arrival->bytes = SpanOf(*tensor, part).bytes();
    arrival->memory = PinnedPool::Block(shared_, place.values + arrival->offset);
    arrival->words = place.words + part * place_.local_size;
    arrival->streams = place_.local_size;
    arrival->own = place_.local_rank;
    arrival->arrived = place.arrived;
    arrivals.push_back(arrival);
  }
  events_.SetArrivals(tensor, std::move(arrivals));
  return OkStatus();
}

bool StreamResults::SetArrival(const PartPointer& part) {
  part->arrival = events_.ArrivalOf(part->tensor, part->number);
  if (part->arrival == nullptr) return false;
  part->output = part->arrival->memory;
  return true;
}

// What the device decodes comes as it is or encoded, which is known too late for a stream.
bool StreamResults::TakesShared(const StagedTensor& tensor) const {
  if (tensor.on_submitted == nullptr || place_.is_one_host()) return false;
  for (uint32_t part = 0; part < tensor.part_count(); ++part) {
    const DeviceForm form = SumFormOf(*tensor.exchange, part, place_.rank, device_);
    if (form.codec != CodecId::kRaw) return false;
  }
  return true;
}

Status StreamResults::TakeOutput(const std::vector<PartPointer>& parts, size_t bytes,
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
  events_.AddArrival(tensor, arrival);
  return OkStatus();
}

// The function is not kept: whoever gets the event, which has the tensor, keeps it.
void StreamResults::SetOnSubmitted(const TensorPointer& tensor) {
  const auto on_submitted = std::exchange(tensor->on_submitted, nullptr);
  if (on_submitted == nullptr) return;
  DeviceEvent end;
  if (tensor->is_copied_by_stream) end = std::make_shared<Event>(this, tensor);
  on_submitted(end);
}

Status StreamResults::MakeStreamWait(const TensorPointer& tensor, CudaStreamHandle stream,
                                     void* to) {
  const auto start = [&](const RankDevice::Done& done) {
    // All are there since it was submitted.
    for (const ArrivalPointer& arrival : tensor->arrivals) {
      BYTEPS_RETURN_IF_ERROR(device_->CopyWhenArrived(
          stream, &arrival->word(), arrival->arrived, arrival->memory.get(),
          static_cast<char*>(to) + arrival->offset, arrival->bytes));
    }
    copies_.WhenCopied(stream, done);
    return OkStatus();
  };
  steps_.Step(tensor, start, [this, tensor] { OnArrivalsCopied(tensor); });
  return events_.FailureOf(tensor);
}

bool StreamResults::EndByItself(const TensorPointer& tensor) {
  const StageEvents::Awaited awaited = events_.WhatIsAwaited(tensor);
  if (awaited == StageEvents::Awaited::kResults) return false;
  if (awaited == StageEvents::Awaited::kCopies) CopyArrivals(tensor);
  return true;
}

void StreamResults::CopyArrivals(const TensorPointer& tensor) {
  launcher_.Add([this, tensor] {
    // It may fail meanwhile, and drop them.
    const std::vector<ArrivalPointer> arrivals = events_.ArrivalsOf(tensor);
    const auto left = std::make_shared<std::atomic<size_t>>(arrivals.size());
    for (const ArrivalPointer& arrival : arrivals) {
      const auto start = [&](const RankDevice::Done& done) {
        return device_->CopyToDevice(arrival->memory.get(),
                                     static_cast<char*>(tensor->gpu.output) + arrival->offset,
                                     arrival->bytes, done);
      };
      steps_.Step(tensor, start, [this, tensor, left] {
        if (--*left == 0) OnArrivalsCopied(tensor);
      });
    }
  });
}

// What follows finishes the tensor.
void StreamResults::OnArrivalsCopied(const TensorPointer& tensor) {
  for (uint32_t part = 0; part < tensor->part_count(); ++part)
    worker_->NoteStage(tensor->exchange, part, &PartTrace::copy_in_ns);
  events_.SetParts(tensor, 0);
}

void ReleaseStream(const StagedTensor& tensor) {
  for (const ArrivalPointer& arrival : tensor.arrivals) {
    if (arrival->HasCome()) continue;
    // Rather no update than one by what an earlier step has left there. What ranks share is left as
    // it is: others may still get the results.
    if (arrival->streams == 1) std::memset(arrival->memory.get(), 0, arrival->bytes);
    arrival->word().store(arrival->arrived);
  }
}

void LetStreamsGoOn(StagedArrival* arrival) {
  for (int32_t stream = 0; stream < arrival->streams; ++stream) {
    // The rank of the stream may have set it, because the tensor has failed there.
    if (!HasReached(arrival->words[stream], arrival->arrived))
      arrival->words[stream].store(arrival->arrived);
  }
}

}  // namespace byteps

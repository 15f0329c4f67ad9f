// Streams that wait for what servers send.
//
// The wait is one for a word in the host's memory, which CUDA cannot see through: what the GPU has
// to do before the word can be set must be on its streams before the wait is, or it could come to
// lie behind it. That is the reduction within the host and the copy of the input. So the stream
// that computes also copies the result, behind its wait, and the caller waits for no tensor before
// the inputs of all have been submitted (tf/stream_exchanges.h).
//
// That nobody waits for ever follows from the log's order where GPUs share a host. A rank puts the
// wait for a tensor on its stream when it has launched all that the log says up to this tensor, and
// what is launched later belongs to tensors that are later in the log. So the first tensor of the
// log that is not there yet lies behind waits for earlier ones only, which are over.
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "cc/staging/local_group.h"

namespace byteps {
namespace {

// What a program has copied is marked with the next exchange that it begins, or after this time.
constexpr auto kMarkPatience = std::chrono::milliseconds(1);
constexpr auto kPollInterval = std::chrono::milliseconds(1);

}  // namespace

class LocalGroup::ResultEvent : public StreamEvent {
 public:
  ResultEvent(std::weak_ptr<LocalGroup> group, TensorPointer tensor)
      : group_(std::move(group)), tensor_(std::move(tensor)) {}

  Status MakeStreamWait(CudaStreamHandle stream) override {
    return CopyResult(stream, tensor_->gpu.output);
  }
  Status CopyResult(CudaStreamHandle stream, void* to) override {
    const std::shared_ptr<LocalGroup> group = group_.lock();
    const TensorPointer tensor = std::move(tensor_);
    return group != nullptr ? group->MakeStreamWait(tensor, stream, to)
                            : Cancelled("the worker has ended");
  }
  // On a thread of its own: should the group end with this, that waits for its device's threads,
  // one of which may be the caller. It looks for the results now and then: only a program that has
  // failed leaves them.
  void EndByItself() override {
    std::thread([weak = group_, tensor = std::move(tensor_)] {
      while (tensor != nullptr) {
        const std::shared_ptr<LocalGroup> group = weak.lock();
        if (group == nullptr || group->EndByItself(tensor)) return;
        std::this_thread::sleep_for(kPollInterval);
      }
    }).detach();
  }
  bool IsOfHost() const override { return true; }

 private:
  const std::weak_ptr<LocalGroup> group_;
  TensorPointer tensor_;  // until one of these is called, since its memory would stay in use
};

bool LocalGroup::StreamCanWait(const TensorDescription& tensor) {
  if (tensor.kind == ExchangeKind::kGather) return false;
  if (place_.is_one_host()) return true;
  if (tensor.kind == ExchangeKind::kBroadcast || tensor.ElementCount() == 0) return false;
  if (alone()) return device_->StreamsWaitForHost();
  std::lock_guard<std::mutex> lock(mutex_);
  return shares_results_;
}

// The function is not kept: whoever gets the event, which has the tensor, keeps it.
void LocalGroup::SetOnSubmitted(const TensorPointer& tensor) {
  const auto on_submitted = std::exchange(tensor->on_submitted, nullptr);
  if (on_submitted == nullptr) return;
  DeviceEvent end;
  if (tensor->is_copied_by_stream) end = std::make_shared<ResultEvent>(weak_from_this(), tensor);
  on_submitted(end);
}

void LocalGroup::OnArrived(const PartPointer& part) {
  StagedArrival& arrival = *part->arrival;
  std::lock_guard<std::mutex> lock(mutex_);
  if (--arrival.parts_left > 0) return;
  for (int32_t stream = 0; stream < arrival.streams; ++stream) {
    // The rank of the stream may have set it, because the tensor has failed there.
    if (!HasReached(arrival.words[stream], arrival.arrived))
      arrival.words[stream].store(arrival.arrived);
  }
}

Status LocalGroup::MakeStreamWait(const TensorPointer& tensor, CudaStreamHandle stream, void* to) {
  const auto start = [&](const RankDevice::Done& done) {
    // All are there since it was submitted.
    for (const ArrivalPointer& arrival : tensor->arrivals) {
      BYTEPS_RETURN_IF_ERROR(device_->CopyWhenArrived(
          stream, &arrival->word(), arrival->arrived, arrival->memory.get(),
          static_cast<char*>(to) + arrival->offset, arrival->bytes));
    }
    WhenCopied(stream, done);
    return OkStatus();
  };
  Step(tensor, start, [this, tensor] { OnArrivalsCopied(tensor); });
  std::lock_guard<std::mutex> lock(mutex_);
  return tensor->failure;
}

void LocalGroup::WhenCopied(CudaStreamHandle stream, RankDevice::Done done) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    std::vector<RankDevice::Done>& copied = copied_[stream];
    copied.push_back(std::move(done));
    if (copied.size() > 1) return;
  }
  event_recorder_.Add([this, stream] {
    std::this_thread::sleep_for(kMarkPatience);
    RecordCopied(stream);
  });
}

void LocalGroup::RecordCopied(CudaStreamHandle stream) {
  std::vector<RankDevice::Done> copied;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = copied_.find(stream);
    if (found == copied_.end()) return;
    copied = std::move(found->second);
    copied_.erase(found);
  }
  const auto all = [copied](const Status& result) {
    for (const RankDevice::Done& each : copied) each(result);
  };
  Launch([&](const RankDevice::Done& done) { return device_->WhenComputed(stream, done); }, all);
}

bool LocalGroup::EndByItself(const TensorPointer& tensor) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (tensor->finished || !tensor->failure.ok()) return true;
    for (const ArrivalPointer& arrival : tensor->arrivals) {
      if (!arrival->HasCome()) return false;
    }
  }
  CopyArrivals(tensor);
  return true;
}

void LocalGroup::CopyArrivals(const TensorPointer& tensor) {
  launcher_.Add([this, tensor] {
    std::vector<ArrivalPointer> arrivals;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      arrivals = tensor->arrivals;  // it may fail meanwhile, and drop them
    }
    const auto left = std::make_shared<std::atomic<size_t>>(arrivals.size());
    for (const ArrivalPointer& arrival : arrivals) {
      const auto start = [&](const RankDevice::Done& done) {
        return device_->CopyToDevice(arrival->memory.get(),
                                     static_cast<char*>(tensor->gpu.output) + arrival->offset,
                                     arrival->bytes, done);
      };
      Step(tensor, start, [this, tensor, left] {
        if (--*left == 0) OnArrivalsCopied(tensor);
      });
    }
  });
}

// What follows finishes the tensor.
void LocalGroup::OnArrivalsCopied(const TensorPointer& tensor) {
  const auto parts = tensor->part_count();
  for (uint32_t part = 0; part < parts; ++part)
    worker_->NoteStage(tensor->exchange, part, &PartTrace::copy_in_ns);
  std::lock_guard<std::mutex> lock(mutex_);
  tensor->parts_left = 0;
}

void LocalGroup::ReleaseStream(const StagedTensor& tensor) {
  for (const ArrivalPointer& arrival : tensor.arrivals) {
    if (arrival->HasCome()) continue;
    // Rather no update than one by what an earlier step has left there. What ranks share is left as
    // it is: others may still get the results.
    if (arrival->streams == 1) std::memset(arrival->memory.get(), 0, arrival->bytes);
    arrival->word().store(arrival->arrived);
  }
}

}  // namespace byteps

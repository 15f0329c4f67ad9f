// A worker that is alone on its host: it has nothing to reduce, and its caller's stream can wait
// for what servers send.
//
// The wait is one for a word in the host's memory, which CUDA cannot see through: what the GPU has
// to do before the word can be set must be on its streams before the wait is, or it could come to
// lie behind it. That is the copy of the input only. So the stream that computes also copies the
// result, behind its wait, and the caller waits for no tensor before the inputs of all are on their
// way out (tf/stream_exchanges.h).
#include <atomic>
#include <chrono>
#include <cstring>
#include <new>
#include <thread>
#include <utility>

#include "cc/staging/local_group_part.h"

namespace byteps {
namespace {

// What is copied out at a time: 0.1 ms of a GPU's link.
constexpr size_t kBytesTogether = 4 << 20;
constexpr size_t kCacheLineBytes = 64;
// What a program has copied is marked with the next exchange that it begins, or after this time.
constexpr auto kMarkPatience = std::chrono::milliseconds(1);

}  // namespace

class LocalGroup::ResultMark : public StreamMark {
 public:
  ResultMark(std::weak_ptr<LocalGroup> group, TensorPointer tensor)
      : group_(std::move(group)), tensor_(std::move(tensor)) {}

  Status HoldUp(CudaStreamHandle stream) override {
    return CopyResult(stream, tensor_->gpu.output);
  }
  Status CopyResult(CudaStreamHandle stream, void* to) override {
    const std::shared_ptr<LocalGroup> group = group_.lock();
    const TensorPointer tensor = std::move(tensor_);
    return group != nullptr ? group->HoldUp(tensor, stream, to) : Cancelled("the worker has ended");
  }
  // On a thread of its own: should the group end with this, that waits for its device's threads,
  // one of which may be the caller.
  void EndByItself() override {
    std::thread([weak = group_, tensor = std::move(tensor_)] {
      const std::shared_ptr<LocalGroup> group = weak.lock();
      if (group != nullptr && tensor != nullptr) group->EndByItself(tensor);
    }).detach();
  }
  bool IsOfHost() const override { return true; }

 private:
  const std::weak_ptr<LocalGroup> group_;
  TensorPointer tensor_;  // until one of these is called, since its memory would stay in use
};

bool LocalGroup::StreamCanWait(const TensorDescription& tensor) const {
  if (tensor.kind == ExchangeKind::kGather) return false;
  if (results_from_ == ResultsFrom::kCollective) return true;
  return alone() && tensor.kind != ExchangeKind::kBroadcast && tensor.ElementCount() > 0 &&
         device_->StreamsWaitForHost();
}

// Parts are copied several at a time: a call of CUDA's has to wait for those by which TensorFlow
// puts its own work on the GPU.
void LocalGroup::StartAlone(const TensorPointer& tensor) {
  const auto count = static_cast<uint32_t>(tensor->exchange->entry->parts.size());
  if (tensor->gpu.tensor.kind == ExchangeKind::kBroadcast) {
    for (uint32_t part = 0; part < count; ++part) StartReduce(tensor, part);
    return;
  }
  std::vector<std::vector<PartPointer>> groups;
  size_t bytes = 0;
  bool is_decoded = false;
  for (uint32_t number = 0; number < count; ++number) {
    PartPointer part = NewPart(tensor, number);
    is_decoded = is_decoded || part->sum_form.codec != CodecId::kRaw;
    const bool begins_group = groups.empty() || bytes + part->encoded.bytes > kBytesTogether ||
                              (part->is_encoded() && groups.back().size() == kPartsEncodedTogether);
    if (begins_group) {
      groups.emplace_back();
      bytes = 0;
    }
    bytes += part->encoded.bytes;
    groups.back().push_back(std::move(part));
  }
  // Not kept: whoever gets the mark, which has the tensor, keeps it.
  const auto on_its_way = std::exchange(tensor->on_its_way, nullptr);
  // What the device decodes comes as it is or encoded, which is known too late for a stream.
  tensor->is_copied_by_stream = on_its_way != nullptr && !is_decoded;
  tensor->results_left = count;
  if (tensor->input_ready != nullptr) {
    const Status status = device_->StartCopiesAfterMark(tensor->input_ready);
    if (!status.ok()) return Fail(status);
  }
  for (const std::vector<PartPointer>& group : groups) CopyOut(group);
  if (on_its_way == nullptr) return;
  DeviceMark end;
  if (tensor->is_copied_by_stream) end = std::make_shared<ResultMark>(weak_from_this(), tensor);
  on_its_way(end);
}

Status LocalGroup::TakeOutput(const std::vector<PartPointer>& parts, size_t bytes,
                              PinnedPool::Block* output) {
  const PartPointer& first = parts.front();
  const TensorPointer& tensor = first->tensor;
  if (!tensor->is_copied_by_stream) return device_->pinned_pool().Take(bytes, output);
  const size_t until_word = (bytes + kCacheLineBytes - 1) / kCacheLineBytes * kCacheLineBytes;
  BYTEPS_RETURN_IF_ERROR(device_->pinned_pool().Take(until_word + sizeof(ArrivalWord), output));
  const auto arrival = std::make_shared<Arrival>();
  arrival->memory = *output;
  arrival->bytes = bytes;
  arrival->offset = tensor->exchange->PartOffset(first->number);
  arrival->word = new (static_cast<char*>(output->get()) + until_word) ArrivalWord(0);
  arrival->parts_left = parts.size();
  for (const PartPointer& part : parts) part->arrival = arrival;
  std::lock_guard<std::mutex> lock(mutex_);
  tensor->arrivals.push_back(arrival);
  return OkStatus();
}

void LocalGroup::OnArrived(const PartPointer& part) {
  const TensorPointer& tensor = part->tensor;
  bool is_last = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (--part->arrival->parts_left == 0) part->arrival->word->store(kArrived);
    is_last = --tensor->results_left == 0 && tensor->ends_by_itself;
  }
  if (is_last) CopyArrivals(tensor);
}

Status LocalGroup::HoldUp(const TensorPointer& tensor, CudaStreamHandle stream, void* to) {
  const auto start = [&](const RankDevice::Done& done) {
    // All are there since it was on its way.
    for (const ArrivalPointer& arrival : tensor->arrivals) {
      BYTEPS_RETURN_IF_ERROR(device_->CopyWhenArrived(stream, arrival->word, arrival->memory.get(),
                                                      static_cast<char*>(to) + arrival->offset,
                                                      arrival->bytes));
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
  marker_.Add([this, stream] {
    std::this_thread::sleep_for(kMarkPatience);
    MarkCopied(stream);
  });
}

void LocalGroup::MarkCopied(CudaStreamHandle stream) {
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
  const Status status = device_->WhenComputed(stream, all);
  if (status.ok()) return;
  Fail(status);
  all(status);
}

void LocalGroup::EndByItself(const TensorPointer& tensor) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    tensor->ends_by_itself = true;
    if (tensor->results_left > 0) return;
  }
  CopyArrivals(tensor);
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
  const auto parts = static_cast<uint32_t>(tensor->exchange->entry->parts.size());
  for (uint32_t part = 0; part < parts; ++part)
    worker_->NoteStage(tensor->exchange, part, &PartTrace::copy_in_ns);
  std::lock_guard<std::mutex> lock(mutex_);
  tensor->parts_left = 0;
}

void LocalGroup::ReleaseStream(const Tensor& tensor) {
  for (const ArrivalPointer& arrival : tensor.arrivals) {
    if (arrival->parts_left == 0) continue;
    // Rather no update than one by what an earlier step has left there.
    std::memset(arrival->memory.get(), 0, arrival->bytes);
    arrival->word->store(kArrived);
  }
}

}  // namespace byteps

// For tests: a RankDevice whose memory is the host's and whose collectives are arithmetic between
// threads, which a simulation can run, too. As NCCL on a stream: a call returns at once, the n-th
// calls of all ranks are one collective, and it is a fault when they are not of one kind and
// length.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/clock.h"
#include "cc/base/mutex.h"
#include "cc/base/work_threads.h"
#include "cc/codec/int8_codec.h"
#include "cc/gpu/rank_device.h"

namespace byteps {

// A point in a stream's work.
class CpuEvent : public StreamEvent {
 public:
  Status MakeStreamWait(CudaStreamHandle) override { return Internal("no test needs it"); }
  void Reach() {
    {
      MutexLock lock(mutex_);
      reached_ = true;
    }
    changed_.NotifyAll();
  }
  void Wait() {
    MutexLock lock(mutex_);
    while (!reached_) changed_.Wait(mutex_);
  }

 private:
  Mutex mutex_;
  CondVar changed_;
  bool reached_ BYTEPS_GUARDED_BY(mutex_) = false;
};

// What the ranks of a host share.
class CpuCommunicator {
 public:
  struct Call {
    char kind = 'a';  // all-reduce, reduce, broadcast
    DeviceSpan span;
    NcclOperation operation = NcclOperation::kSum;
    int32_t root = 0;
    size_t together = 1;  // how many were called at once
  };

  // Blocks until all ranks are there.
  Status Join(int32_t size) {
    MutexLock lock(mutex_);
    calls_.resize(size);
    aborted_.resize(size);
    ++joined_;
    changed_.NotifyAll();
    while (joined_ < size && failure_.ok()) changed_.Wait(mutex_);
    return failure_;
  }

  // On a rank's stream: blocks until all ranks have come so far, or this one is aborted.
  Status Run(int32_t rank, const Call& call) {
    MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    calls_[rank] = call;
    const uint64_t awaited = ended_ + 1;
    if (++called_ == calls_.size()) {
      result_ = Compute(calls_);
      called_ = 0;
      ++ended_;
      changed_.NotifyAll();
    }
    while (ended_ < awaited && !aborted_[rank]) changed_.Wait(mutex_);
    return ended_ >= awaited ? result_ : failure_;
  }

  // What a sanitizer cannot see where the ranks have mapped one memory at several addresses: all
  // collectives that have ended came before.
  void Synchronize() { MutexLock lock(mutex_); }

  // As an abort of one rank's communicator: its calls end, and nobody else's ever will.
  void Abort(int32_t rank, const Status& reason) {
    MutexLock lock(mutex_);
    if (failure_.ok()) failure_ = reason;
    if (rank < static_cast<int32_t>(aborted_.size())) aborted_[rank] = true;
    changed_.NotifyAll();
  }

 private:
  static Status Compute(const std::vector<Call>& calls) {
    const Call& first = calls[0];
    for (const Call& call : calls) {
      if (call.kind != first.kind || call.span.count != first.span.count ||
          call.root != first.root || call.operation != first.operation ||
          call.together != first.together || call.span.dtype != DType::kFloat32) {
        return Internal("the ranks launch different collectives");
      }
    }
    const size_t count = first.span.count;
    std::vector<float> result(count);
    for (size_t i = 0; i < count; ++i) {
      const auto value = [&](size_t rank) {
        return static_cast<const float*>(calls[rank].span.from)[i];
      };
      result[i] = value(first.kind == 'b' ? first.root : 0);
      for (size_t rank = 1; first.kind != 'b' && rank < calls.size(); ++rank) {
        if (first.operation == NcclOperation::kProduct) result[i] *= value(rank);
        if (first.operation == NcclOperation::kMin) result[i] = std::min(result[i], value(rank));
        if (first.operation == NcclOperation::kMax) result[i] = std::max(result[i], value(rank));
        if (first.operation == NcclOperation::kSum || first.operation == NcclOperation::kAverage)
          result[i] += value(rank);
      }
      if (first.operation == NcclOperation::kAverage) result[i] /= calls.size();
    }
    for (size_t rank = 0; rank < calls.size(); ++rank) {
      if (first.kind == 'r' && static_cast<int32_t>(rank) != first.root) continue;
      std::memcpy(calls[rank].span.to, result.data(), count * sizeof(float));
    }
    return OkStatus();
  }

  Mutex mutex_;
  CondVar changed_;
  int32_t joined_ = 0;
  std::vector<Call> calls_;  // by rank: of the collective that has not ended
  size_t called_ = 0;        // how many of them
  uint64_t ended_ = 0;       // collectives
  Status result_;            // of the last one
  std::vector<bool> aborted_;
  Status failure_;
};

class CpuRankDevice : public RankDevice {
 public:
  static constexpr int64_t kLongestPollNanos = 5'000'000;

  CpuRankDevice() {
    PinnedSource source;
    source.allocate = [this](size_t bytes, void** address) {
      WaitUntilFree();
      *address = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
      return OkStatus();
    };
    source.free = [](void* address, size_t) { std::free(address); };
    pool_ = PinnedPool::Create(std::move(source));
  }

  Status NewGroup(NcclUniqueId* id) override {
    static std::atomic<uint64_t> groups{0};
    const std::string name = "group " + std::to_string(++groups);
    id->bytes.fill(0);
    std::copy(name.begin(), name.end(), id->bytes.begin());
    return OkStatus();
  }
  Status Connect(const NcclUniqueId& id, int32_t size, int32_t rank) override {
    static Mutex mutex;
    static auto* const known = new std::map<std::string, std::weak_ptr<CpuCommunicator>>;
    std::shared_ptr<CpuCommunicator> communicator;
    {
      MutexLock lock(mutex);
      std::weak_ptr<CpuCommunicator>& entry = (*known)[id.bytes.data()];
      communicator = entry.lock();
      if (communicator == nullptr) entry = communicator = std::make_shared<CpuCommunicator>();
    }
    {
      MutexLock lock(mutex_);
      communicator_ = communicator;
      rank_ = rank;
    }
    return communicator->Join(size);
  }
  // As NCCL, which frees memory of the GPU: it waits for what is on the stream that computes.
  void Abort(const Status& reason) override {
    const auto computed = std::make_shared<CpuEvent>();
    Put(&computed_, [computed] { computed->Reach(); });
    computed->Wait();
    MutexLock lock(mutex_);
    failure_ = reason;
    if (communicator_ != nullptr) communicator_->Abort(rank_, reason);
  }
  Status Finish() override {
    MutexLock lock(mutex_);
    communicator_ = nullptr;
    ++finished_;
    return OkStatus();
  }
  int finished() {
    MutexLock lock(mutex_);
    return finished_;
  }

  // How often AllReduce was called.
  int all_reduces() {
    MutexLock lock(mutex_);
    return all_reduces_;
  }

  // As CUDA while it loads a module beside a stream that waits: until told otherwise, no call that
  // gives the device something to do returns. What it has been given goes on.
  void BeBusy(bool is_busy) {
    {
      MutexLock lock(busy_mutex_);
      is_busy_ = is_busy;
    }
    free_.NotifyAll();
  }

  // Before it is used: `delay` is called at the begin of each call and of each piece of work, on
  // the thread that is to wait.
  void Delay(std::function<void()> delay) { delay_ = std::move(delay); }

  // Puts work on the stream that computes inputs.
  void Compute(std::function<void()> work) { Put(&computed_, std::move(work)); }

  Status WhenComputed(CudaStreamHandle, Done done) override {
    BeginCall();
    Put(&computed_, [done = std::move(done)] { done(OkStatus()); });
    return OkStatus();
  }
  Status StartAfter(CudaStreamHandle) override { return OkStatus(); }
  Status RecordEvent(CudaStreamHandle, DeviceEvent* event) override {
    return RecordOn(&computed_, event);
  }
  Status StartAfterEvent(const DeviceEvent& event) override {
    BeginCall();
    Put(&collectives_, [event] { static_cast<CpuEvent*>(event.get())->Wait(); });
    return OkStatus();
  }
  Status RecordEnd(DeviceEvent* event) override { return RecordOn(&collectives_, event); }
  Status AllReduce(const std::vector<Reduction>& reductions, Done done) override {
    BeginCall();
    {
      MutexLock lock(mutex_);
      ++all_reduces_;
    }
    std::vector<CpuCommunicator::Call> calls;
    for (const Reduction& each : reductions)
      calls.push_back({'a', each.span, each.operation, 0, reductions.size()});
    return Launch(std::move(calls), std::move(done));
  }
  Status Reduce(const DeviceSpan& span, NcclOperation operation, int32_t root, Done done) override {
    return Launch({{'r', span, operation, root, 1}}, std::move(done));
  }
  Status Broadcast(const DeviceSpan& span, int32_t root, Done done) override {
    return Launch({{'b', span, NcclOperation::kSum, root, 1}}, std::move(done));
  }
  Status StartCopiesAfterEvent(const DeviceEvent& event) override {
    BeginCall();
    Put(&to_host_, [event] { static_cast<CpuEvent*>(event.get())->Wait(); });
    return OkStatus();
  }
  bool StreamsWaitForHost() override { return streams_wait_; }
  // The stream that computes is the only one that waits here.
  Status CopyWhenArrived(CudaStreamHandle, const ArrivalWord* word, uint32_t value,
                         const void* from, void* to, size_t bytes) override {
    BeginCall();
    Put(&computed_, [=, communicator = communicator()] {
      for (int64_t nanos = 100'000; !HasReached(*word, value);
           nanos = std::min(2 * nanos, kLongestPollNanos))
        SleepFor(nanos);
      if (communicator != nullptr) communicator->Synchronize();
      std::memcpy(to, from, bytes);
    });
    return OkStatus();
  }
  Status CopyToHost(const void* from, void* to, size_t bytes, Done done) override {
    return Copy(&to_host_, from, to, bytes, std::move(done));
  }
  Status CopyToDevice(const void* from, void* to, size_t bytes, Done done) override {
    return Copy(&to_device_, from, to, bytes, std::move(done));
  }
  bool Supports(const DeviceForm& form) override {
    return encodes_ && form.codec == CodecId::kInt8;
  }
  Status EncodeToHost(const std::vector<DevicePart>& parts, void* to, Done done) override {
    BeginCall();
    Put(&to_host_, [=, done = std::move(done)] {
      auto* next = static_cast<uint8_t*>(to);
      for (const DevicePart& part : parts) {
        const DeviceForm& form = part.form;
        if (form.codec == CodecId::kRaw) {
          std::memcpy(next, part.values, part.bytes);
        } else {
          Int8Codec(form.block, form.is_stochastic)
              .EncodeBlocks(static_cast<const float*>(part.values), part.elements, 0,
                            CounterRandom(form.random_state), next);
        }
        next += part.bytes;
      }
      encoded_parts_ += parts.size();
      done(OkStatus());
    });
    return OkStatus();
  }
  Status DecodeToDevice(const std::vector<ArrivedPart>& parts, Done done) override {
    ++decode_calls_;
    BeginCall();
    Put(&to_device_, [=, done = std::move(done)] {
      for (const ArrivedPart& part : parts) {
        const DeviceForm& form = part.form;
        if (form.codec == CodecId::kRaw) {
          std::memcpy(part.to, part.from, part.elements * sizeof(float));
          continue;
        }
        Int8Codec(form.block, form.is_stochastic)
            .DecodeBlocks(static_cast<const uint8_t*>(part.from), part.elements, DecodeMode::kStore,
                          static_cast<float*>(part.to));
        ++decoded_parts_;
      }
      done(OkStatus());
    });
    return OkStatus();
  }
  // Before it is used: as a GPU on which the kernels cannot be had.
  void EncodeNothing() { encodes_ = false; }
  // Before it is used: as a GPU whose driver does not let streams wait for the host.
  void WaitForNothing() { streams_wait_ = false; }
  uint64_t encoded_parts() const { return encoded_parts_; }
  uint64_t decoded_parts() const { return decoded_parts_; }
  // That have begun.
  uint64_t decode_calls() const { return decode_calls_; }
  Status CopyWithin(const std::vector<DeviceSpan>& spans, Done done) override {
    BeginCall();
    Put(&collectives_, [spans, done = std::move(done)] {
      for (const DeviceSpan& span : spans) {
        if (span.to != span.from) std::memcpy(span.to, span.from, span.bytes());
      }
      done(OkStatus());
    });
    return OkStatus();
  }
  PinnedPool& pinned_pool() override { return *pool_; }
  MemoryPinner pinner() override {
    MemoryPinner pinner;
    pinner.pin = [](void*, size_t) { return OkStatus(); };
    pinner.unpin = [](void*) {};
    return pinner;
  }

 private:
  std::shared_ptr<CpuCommunicator> communicator() {
    MutexLock lock(mutex_);
    return communicator_;
  }
  void BeginCall() {
    WaitUntilFree();
    if (delay_) delay_();
  }
  void Put(WorkThreads* stream, std::function<void()> work) {
    stream->Add([this, work = std::move(work)] {
      if (delay_) delay_();
      work();
    });
  }
  void WaitUntilFree() {
    MutexLock lock(busy_mutex_);
    while (is_busy_) free_.Wait(busy_mutex_);
  }
  Status Launch(std::vector<CpuCommunicator::Call> calls, Done done) {
    BeginCall();
    std::shared_ptr<CpuCommunicator> communicator;
    int32_t rank = 0;
    {
      MutexLock lock(mutex_);
      if (!failure_.ok()) return failure_;
      communicator = communicator_;
      rank = rank_;
    }
    Put(&collectives_, [=, done = std::move(done)] {
      Status status;
      for (const CpuCommunicator::Call& call : calls) {
        if (status.ok()) status = communicator->Run(rank, call);
      }
      done(status);
    });
    return OkStatus();
  }
  Status RecordOn(WorkThreads* stream, DeviceEvent* event) {
    BeginCall();
    const auto made = std::make_shared<CpuEvent>();
    Put(stream, [made] { made->Reach(); });
    *event = made;
    return OkStatus();
  }
  Status Copy(WorkThreads* stream, const void* from, void* to, size_t bytes, Done done) {
    BeginCall();
    Put(stream, [=, done = std::move(done)] {
      if (to != from) std::memcpy(to, from, bytes);
      done(OkStatus());
    });
    return OkStatus();
  }

  std::shared_ptr<PinnedPool> pool_;
  std::function<void()> delay_;  // null: none
  bool encodes_ = true;
  bool streams_wait_ = true;
  std::atomic<uint64_t> encoded_parts_{0};
  std::atomic<uint64_t> decoded_parts_{0};
  std::atomic<uint64_t> decode_calls_{0};
  Mutex busy_mutex_;  // guards is_busy_
  CondVar free_;
  bool is_busy_ = false;
  Mutex mutex_;  // guards these
  std::shared_ptr<CpuCommunicator> communicator_;
  int32_t rank_ = 0;
  Status failure_;
  int finished_ = 0;
  int all_reduces_ = 0;

  // The last to be made and the first to end: what runs there uses all above.
  WorkThreads to_device_{"test-to-device", 1};
  WorkThreads to_host_{"test-to-host", 1};
  WorkThreads collectives_{"test-reduce", 1};
  WorkThreads computed_{"test-compute", 1};
};

}  // namespace byteps

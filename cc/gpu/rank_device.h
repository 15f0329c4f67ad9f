// RankDevice: what a worker's GPU does for its host's exchanges: collectives with the GPUs of the
// other local ranks, and copies between its own memory and the host's.
//
// An interface, because everything around it (staging/local_group.h) is order and bookkeeping,
// which tests run without a GPU, too. All but Connect return at once; an error that a call returns
// means that its `done` is never called. `done` comes on a thread of the device and must not block.
// Thread-safe; but the collectives of all ranks must be called in one order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "cc/base/dtype.h"
#include "cc/base/status.h"
#include "cc/gpu/cuda_driver.h"
#include "cc/gpu/device.h"
#include "cc/gpu/device_form.h"
#include "cc/gpu/nccl.h"
#include "cc/gpu/pinned_pool.h"

namespace byteps {

// A point in the work of one of a device's streams; of a GPU a CudaEvent.
using DeviceEvent = std::shared_ptr<StreamEvent>;

// A word in pinned memory that tells a stream what is there by now: the host only counts it up.
using ArrivalWord = std::atomic<uint32_t>;

// Whether a word has come so far; the GPU compares in the same way, round the end of the numbers.
inline bool HasReached(const ArrivalWord& word, uint32_t value) {
  return static_cast<int32_t>(word.load() - value) >= 0;
}

// Makes host memory that somebody else has mapped as fast for copies as that of a pool. Its
// functions may be called after the device's end.
struct MemoryPinner {
  std::function<Status(void* address, size_t bytes)> pin;
  std::function<void(void* address)> unpin;
};

class RankDevice {
 public:
  using Done = std::function<void(const Status&)>;

  virtual ~RankDevice() = default;

  // A name for the group of a host's ranks, made by one of them.
  virtual Status NewGroup(NcclUniqueId* id) = 0;
  // Connects to the other ranks; blocks until all `size` of them call it.
  virtual Status Connect(const NcclUniqueId& id, int32_t size, int32_t rank) = 0;
  // Ends all collectives, those in flight, too, with `reason`.
  virtual void Abort(const Status& reason) = 0;
  // Leaves the group in order; all ranks call it, after their last collective has ended.
  virtual Status Finish() = 0;

  // Calls `done` when all that `stream` holds now is computed.
  virtual Status WhenComputed(CudaStreamHandle stream, Done done) = 0;

  // What collectives and copies within the device are called from now on starts after all that
  // `stream` holds now.
  virtual Status StartAfter(CudaStreamHandle stream) = 0;

  // The same for a point in a stream that was marked earlier.
  virtual Status RecordEvent(CudaStreamHandle stream, DeviceEvent* event) = 0;
  virtual Status StartAfterEvent(const DeviceEvent& event) = 0;

  // The end of all collectives and copies within the device that have been called.
  virtual Status RecordEnd(DeviceEvent* event) = 0;

  // All at once, which is one collective: the same ones on all ranks.
  virtual Status AllReduce(const std::vector<Reduction>& reductions, Done done) = 0;
  // `to` counts at `root` only.
  virtual Status Reduce(const DeviceSpan& span, NcclOperation operation, int32_t root,
                        Done done) = 0;
  // `from` counts at `root` only.
  virtual Status Broadcast(const DeviceSpan& span, int32_t root, Done done) = 0;

  // What is copied to the host from now on is so after a point that was marked earlier.
  virtual Status StartCopiesAfterEvent(const DeviceEvent& event) = 0;

  virtual Status CopyToHost(const void* from, void* to, size_t bytes, Done done) = 0;
  virtual Status CopyToDevice(const void* from, void* to, size_t bytes, Done done) = 0;

  // Whether a stream can wait until the host has set a word. The first call tries it.
  virtual bool StreamsWaitForHost() = 0;
  // Puts on `stream` a wait until `word` has reached a value, and then a copy from the host's
  // pinned memory. Work that the GPU has to do before the word can be set must be on its streams
  // already: the wait may hold up whatever comes after it, also on other streams, which may share a
  // queue with this.
  virtual Status CopyWhenArrived(CudaStreamHandle stream, const ArrivalWord* word, uint32_t value,
                                 const void* from, void* to, size_t bytes) = 0;

  // Whether parts can be copied in this form. May take long the first time.
  virtual bool Supports(const DeviceForm& form) = 0;
  // Encodes parts and copies their bytes to the host, one after the other.
  virtual Status EncodeToHost(const std::vector<DevicePart>& parts, void* to, Done done) = 0;
  // Copies parts' bytes and decodes them; all of them end together.
  virtual Status DecodeToDevice(const std::vector<ArrivedPart>& parts, Done done) = 0;

  virtual Status CopyWithin(const std::vector<DeviceSpan>& spans, Done done) = 0;

  // Host memory that the copies are fast with.
  virtual PinnedPool& pinned_pool() = 0;
  virtual MemoryPinner pinner() = 0;
};

}  // namespace byteps

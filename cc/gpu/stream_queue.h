// StreamQueue: work on a stream of its own, and a sleeping thread that says when each piece is
// done.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "cc/base/status.h"
#include "cc/gpu/device.h"
#include "cc/gpu/event_pool.h"

namespace byteps {

// Thread-safe.
class StreamQueue {
 public:
  // Puts work on the stream that it is given.
  using Start = std::function<Status(CudaStreamHandle)>;
  // Called exactly once for each piece of work, on the queue's thread; must not block. The memory
  // that the work uses must be there until then.
  using Done = std::function<void(const Status&)>;

  static Status Create(std::shared_ptr<GpuDevice> device, const std::string& thread_name,
                       std::unique_ptr<StreamQueue>* queue);
  // Waits for the work that was begun.
  ~StreamQueue();

  // The end of what `producer`, a stream that may be somebody else's, holds now.
  Status RecordEvent(CudaStreamHandle producer, std::shared_ptr<CudaEvent>* event);

  // Adds work that begins, on the GPU, after all that was added before and after `event`, if there
  // is one. An error here means that `done` is never called.
  Status Add(const std::shared_ptr<CudaEvent>& event, const Start& start, Done done);

  // The work that is added from now on begins after `event`, which stays the caller's.
  Status StartAfter(CudaEvent* event);

  // The end of all work that was added.
  Status RecordEnd(std::shared_ptr<CudaEvent>* event);

  // As Add with an event of `producer`; the work of several threads is in the order of their
  // events, so that none waits behind a piece whose producer is later.
  Status AddBehind(CudaStreamHandle producer, const Start& start, Done done);

 private:
  struct Pending {
    std::shared_ptr<CudaEvent> end;
    Done done;
  };

  explicit StreamQueue(std::shared_ptr<GpuDevice> device)
      : device_(device), events_(EventPool::Create(std::move(device))) {}
  void Run();

  // With order_mutex_ held.
  Status AddInOrder(const std::shared_ptr<CudaEvent>& event, const Start& start, Done done);

  const std::shared_ptr<GpuDevice> device_;
  const std::shared_ptr<EventPool> events_;
  std::unique_ptr<CudaStream> stream_;
  std::thread thread_;
  // Guards the order on the stream, and of pending_. Not what the thread needs: whoever adds a
  // thousand pieces in a row would keep it from telling that the first ones are done.
  std::mutex order_mutex_;
  std::mutex mutex_;  // guards all below; never held during a call of CUDA's
  std::condition_variable changed_;
  std::deque<Pending> pending_;
  bool stopping_ = false;
};

}  // namespace byteps

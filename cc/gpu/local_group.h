// LocalGroup: the workers of a host, a GPU each, and their collectives in the order of one log.
//
// Every local rank has one. A tensor that is ready is reported to local rank 0, where the host's
// sequencer is; its log comes back to all, and every rank launches it on a stream of its own. The
// ranks' own streams never wait.
#ifndef TF_BYTEPS_CC_GPU_LOCAL_GROUP_H_
#define TF_BYTEPS_CC_GPU_LOCAL_GROUP_H_

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <variant>
#include <vector>

#include "cc/base/status.h"
#include "cc/base/tensor_description.h"
#include "cc/gpu/device.h"
#include "cc/gpu/launch_log.h"
#include "cc/gpu/nccl.h"
#include "cc/gpu/sequencer.h"
#include "cc/gpu/stream_queue.h"

namespace byteps {

// What the local ranks of a host tell each other: how to connect, what is ready, and the log.
using LocalMessage = std::variant<NcclUniqueId, LaunchReport, LogSlice>;

// A tensor in a GPU's memory, to be combined with those of the other local ranks.
struct LocalExchange {
  TensorDescription tensor;  // of any kind but kGather
  const void* input = nullptr;
  void* output = nullptr;
  // Where the input is computed, possibly later, and in whose order the output became free.
  CudaStreamHandle stream = nullptr;
  // Called exactly once, on a thread of the group or inside Enqueue. Must not block.
  std::function<void(const Status&)> done;
};

// Thread-safe. Jobs on one host only, so far: ResultsFrom::kCollective.
class LocalGroup {
 public:
  // Delivers a message to a local rank, this one included, and returns at once. Messages from one
  // rank to another keep their order.
  using SendFunction = std::function<void(int32_t local_rank, const LocalMessage& message)>;

  // Begins to connect; what is enqueued meanwhile waits.
  static Status Create(std::shared_ptr<GpuDevice> device, int32_t local_rank, int32_t local_size,
                       SendFunction send, std::unique_ptr<LocalGroup>* group);
  // Ends what is pending with CANCELLED. All ranks must be done with their exchanges, or Fail must
  // have been called.
  ~LocalGroup();

  // What another rank, or this one, has sent.
  void Receive(LocalMessage message);

  // At most one exchange of a name at a time.
  void Enqueue(LocalExchange exchange);

  // Ends all exchanges with `reason`, those on the GPU, too, and refuses all that come.
  void Fail(const Status& reason);

 private:
  struct Pending {
    LocalExchange exchange;
    std::unique_ptr<CudaEvent> ready;
  };

  LocalGroup(std::shared_ptr<GpuDevice> device, int32_t local_rank, int32_t local_size,
             SendFunction send);
  void Run();
  void Handle(const LocalMessage& message);
  Status Connect(const NcclUniqueId& id);
  Status Launch(const LaunchEntry& entry);
  Status StartCollective(const LocalExchange& exchange, CudaStreamHandle stream);

  const std::shared_ptr<GpuDevice> device_;
  const int32_t local_rank_;
  const int32_t local_size_;
  const SendFunction send_;
  std::unique_ptr<StreamQueue> queue_;
  std::unique_ptr<Sequencer> sequencer_;  // of local rank 0
  LogFollower follower_;                  // of the thread
  std::thread thread_;

  std::mutex mutex_;  // guards all below
  std::condition_variable changed_;
  std::deque<LocalMessage> inbox_;
  std::unique_ptr<NcclCommunicator> communicator_;
  std::unordered_map<uint64_t, Pending> pending_;  // by key: reported, not launched
  std::unordered_map<uint64_t, uint64_t> rounds_;  // by key: the next one
  Status failure_;
  bool stopping_ = false;
};

}  // namespace byteps

#endif  // TF_BYTEPS_CC_GPU_LOCAL_GROUP_H_

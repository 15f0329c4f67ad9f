// Nccl: NVIDIA's collectives between the GPUs of a host; the library is opened at run time.
//
// It comes with TensorFlow's GPU packages. Ours are the declarations; names, numbers and order of
// arguments are those of its manual.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cc/base/dtype.h"
#include "cc/base/status.h"
#include "cc/gpu/device.h"

namespace byteps {

using NcclResult = int;  // 0: success
using NcclCommunicatorHandle = struct NcclCommunicatorObject*;

// Names a group of ranks that are about to connect; made by one of them, given to all. It holds
// that one's address: to be sent to members of the job only.
struct NcclUniqueId {
  std::array<char, 128> bytes;
};

// kAverage: of floating types.
enum class NcclOperation : int { kSum = 0, kProduct = 1, kMax = 2, kMin = 3, kAverage = 4 };

// `count` elements of GPU memory, before and after a collective; may be the same.
struct DeviceSpan {
  const void* from = nullptr;
  void* to = nullptr;
  size_t count = 0;
  DType dtype = DType::kFloat32;

  size_t bytes() const { return count * DTypeSize(dtype); }
};

// What is added up, in place or not.
struct Reduction {
  DeviceSpan span;
  NcclOperation operation = NcclOperation::kSum;
};

struct Nccl {
  // The library, opened by the first call; valid until the process ends. `names` are tried in
  // order, by the first call only. FAILED_PRECONDITION, "no NCCL: ...", if there is none or it is
  // older than 2.10, which knows all our element types.
  static Status Get(const std::vector<std::string>& names, const Nccl** nccl);
  static Status Get(const Nccl** nccl) { return Get({"libnccl.so.2"}, nccl); }

  // OK, or `call` with NCCL's own text of the error. `communicator` may be null.
  Status Check(NcclResult result, const char* call, NcclCommunicatorHandle communicator) const;

  int version = 0;  // 22809 is 2.28.9

  NcclResult (*ncclGetVersion)(int* version);
  const char* (*ncclGetErrorString)(NcclResult result);
  const char* (*ncclGetLastError)(NcclCommunicatorHandle communicator);  // null before 2.13
  NcclResult (*ncclGetUniqueId)(NcclUniqueId* id);
  NcclResult (*ncclCommInitRank)(NcclCommunicatorHandle* communicator, int size, NcclUniqueId id,
                                 int rank);
  NcclResult (*ncclCommDestroy)(NcclCommunicatorHandle communicator);
  NcclResult (*ncclCommAbort)(NcclCommunicatorHandle communicator);
  NcclResult (*ncclCommGetAsyncError)(NcclCommunicatorHandle communicator, NcclResult* error);
  NcclResult (*ncclGroupStart)();
  NcclResult (*ncclGroupEnd)();
  NcclResult (*ncclReduce)(const void* from, void* to, size_t count, int dtype, int operation,
                           int root, NcclCommunicatorHandle communicator, CudaStreamHandle stream);
  NcclResult (*ncclBroadcast)(const void* from, void* to, size_t count, int dtype, int root,
                              NcclCommunicatorHandle communicator, CudaStreamHandle stream);
  NcclResult (*ncclAllReduce)(const void* from, void* to, size_t count, int dtype, int operation,
                              NcclCommunicatorHandle communicator, CudaStreamHandle stream);

 private:
  Status Load(const std::vector<std::string>& names);
};

// One rank of a group of GPUs. The ranks must launch the same collectives in the same order, see
// sequencer.h; one thread at a time.
class NcclCommunicator {
 public:
  // A new name for a group. The process that calls this must live until all ranks are connected.
  static Status NewGroup(NcclUniqueId* id);
  // Connects to the other ranks; blocks until all `size` of them call it.
  static Status Connect(std::shared_ptr<GpuDevice> device, const NcclUniqueId& id, int size,
                        int rank, std::unique_ptr<NcclCommunicator>* communicator);
  // Waits for nobody: what has not ended is aborted unless Finish was called.
  ~NcclCommunicator();

  // Put a collective on `stream`; `count` elements. `to` of Reduce counts at the root only. Input
  // and output may be the same memory.
  Status Reduce(const void* from, void* to, size_t count, DType dtype, NcclOperation operation,
                int root, CudaStreamHandle stream);
  Status Broadcast(const void* from, void* to, size_t count, DType dtype, int root,
                   CudaStreamHandle stream);
  // All of them as one launch.
  Status AllReduce(const std::vector<Reduction>& reductions, CudaStreamHandle stream);

  // An error that NCCL found after a launch: a peer is lost. From any thread.
  Status AsynchronousError() const;

  // Ends the group in order, once all that was launched is done, on all ranks.
  Status Finish();

 private:
  NcclCommunicator(const Nccl* nccl, std::shared_ptr<GpuDevice> device)
      : nccl_(*nccl), device_(std::move(device)) {}

  const Nccl& nccl_;
  const std::shared_ptr<GpuDevice> device_;
  NcclCommunicatorHandle handle_ = nullptr;
};

}  // namespace byteps

#include "cc/gpu/nccl.h"

#include <utility>

#include "cc/base/dynamic_library.h"
#include "cc/base/logging.h"

namespace byteps {
namespace {

constexpr int kOldestVersion = 21000;  // bfloat16

int NcclDType(DType dtype) {
  switch (dtype) {
    case DType::kInt8: return 0;
    case DType::kUInt8: return 1;
    case DType::kInt32: return 2;
    case DType::kInt64: return 4;
    case DType::kFloat16: return 6;
    case DType::kFloat32: return 7;
    case DType::kFloat64: return 8;
    case DType::kBFloat16: return 9;
  }
  return -1;
}

}  // namespace

Status Nccl::Load(const std::vector<std::string>& names) {
  DynamicLibrary library;
  BYTEPS_RETURN_IF_ERROR(library.Open(names));
  BYTEPS_RETURN_IF_ERROR(library.Find("ncclGetVersion", &ncclGetVersion));
  BYTEPS_RETURN_IF_ERROR(library.Find("ncclGetErrorString", &ncclGetErrorString));
  if (!library.Find("ncclGetLastError", &ncclGetLastError).ok()) ncclGetLastError = nullptr;
  BYTEPS_RETURN_IF_ERROR(library.Find("ncclGetUniqueId", &ncclGetUniqueId));
  BYTEPS_RETURN_IF_ERROR(library.Find("ncclCommInitRank", &ncclCommInitRank));
  BYTEPS_RETURN_IF_ERROR(library.Find("ncclCommDestroy", &ncclCommDestroy));
  BYTEPS_RETURN_IF_ERROR(library.Find("ncclCommAbort", &ncclCommAbort));
  BYTEPS_RETURN_IF_ERROR(library.Find("ncclCommGetAsyncError", &ncclCommGetAsyncError));
  BYTEPS_RETURN_IF_ERROR(library.Find("ncclGroupStart", &ncclGroupStart));
  BYTEPS_RETURN_IF_ERROR(library.Find("ncclGroupEnd", &ncclGroupEnd));
  BYTEPS_RETURN_IF_ERROR(library.Find("ncclReduce", &ncclReduce));
  BYTEPS_RETURN_IF_ERROR(library.Find("ncclBroadcast", &ncclBroadcast));
  BYTEPS_RETURN_IF_ERROR(library.Find("ncclAllReduce", &ncclAllReduce));
  BYTEPS_RETURN_IF_ERROR(Check(ncclGetVersion(&version), "ncclGetVersion", nullptr));
  if (version < kOldestVersion) {
    return FailedPrecondition(library.name() + " has version code " + std::to_string(version) +
                              ", but tf_byteps needs NCCL 2.10 (" + std::to_string(kOldestVersion) +
                              ") or newer");
  }
  return OkStatus();
}

Status Nccl::Get(const std::vector<std::string>& names, const Nccl** nccl) {
  struct Loaded {
    Nccl nccl;
    Status status;
    explicit Loaded(const std::vector<std::string>& library_names) {
      status = nccl.Load(library_names);
      if (!status.ok()) status = FailedPrecondition("no NCCL: " + status.message());
    }
  };
  // Never destroyed: threads may still call it while the process ends.
  static const Loaded* const loaded = new Loaded(names);
  *nccl = &loaded->nccl;
  return loaded->status;
}

Status Nccl::Check(NcclResult result, const char* call, NcclCommunicatorHandle communicator) const {
  if (result == 0) return OkStatus();
  std::string message = std::string(call) + ": " + ncclGetErrorString(result);
  const char* const detail = ncclGetLastError != nullptr ? ncclGetLastError(communicator) : "";
  if (detail != nullptr && *detail != '\0') message += std::string(" (") + detail + ")";
  return Internal(message);
}

Status NcclCommunicator::NewGroup(NcclUniqueId* id) {
  const Nccl* nccl = nullptr;
  BYTEPS_RETURN_IF_ERROR(Nccl::Get(&nccl));
  return nccl->Check(nccl->ncclGetUniqueId(id), "ncclGetUniqueId", nullptr);
}

Status NcclCommunicator::Connect(std::shared_ptr<GpuDevice> device, const NcclUniqueId& id,
                                 int size, int rank,
                                 std::unique_ptr<NcclCommunicator>* communicator) {
  const Nccl* nccl = nullptr;
  BYTEPS_RETURN_IF_ERROR(Nccl::Get(&nccl));
  const ScopedContext scope(*device);
  BYTEPS_RETURN_IF_ERROR(scope.status());
  std::unique_ptr<NcclCommunicator> created(new NcclCommunicator(nccl, std::move(device)));
  BYTEPS_RETURN_IF_ERROR(nccl->Check(nccl->ncclCommInitRank(&created->handle_, size, id, rank),
                                     "ncclCommInitRank", nullptr));
  *communicator = std::move(created);
  return OkStatus();
}

NcclCommunicator::~NcclCommunicator() {
  if (handle_ == nullptr) return;
  const ScopedContext scope(*device_);
  const Status status = nccl_.Check(nccl_.ncclCommAbort(handle_), "ncclCommAbort", nullptr);
  if (!status.ok()) LogWarning(status.message());
}

Status NcclCommunicator::Reduce(const void* from, void* to, size_t count, DType dtype,
                                NcclOperation operation, int root, CudaStreamHandle stream) {
  const ScopedContext scope(*device_);
  BYTEPS_RETURN_IF_ERROR(scope.status());
  return nccl_.Check(nccl_.ncclReduce(from, to, count, NcclDType(dtype),
                                      static_cast<int>(operation), root, handle_, stream),
                     "ncclReduce", handle_);
}

Status NcclCommunicator::Broadcast(const void* from, void* to, size_t count, DType dtype, int root,
                                   CudaStreamHandle stream) {
  const ScopedContext scope(*device_);
  BYTEPS_RETURN_IF_ERROR(scope.status());
  return nccl_.Check(nccl_.ncclBroadcast(from, to, count, NcclDType(dtype), root, handle_, stream),
                     "ncclBroadcast", handle_);
}

Status NcclCommunicator::AllReduce(const std::vector<Reduction>& reductions,
                                   CudaStreamHandle stream) {
  const ScopedContext scope(*device_);
  BYTEPS_RETURN_IF_ERROR(scope.status());
  BYTEPS_RETURN_IF_ERROR(nccl_.Check(nccl_.ncclGroupStart(), "ncclGroupStart", handle_));
  Status status;
  for (const Reduction& each : reductions) {
    if (!status.ok()) break;
    const DeviceSpan& span = each.span;
    const int operation = static_cast<int>(each.operation);
    status = nccl_.Check(nccl_.ncclAllReduce(span.from, span.to, span.count, NcclDType(span.dtype),
                                             operation, handle_, stream),
                         "ncclAllReduce", handle_);
  }
  const Status ended = nccl_.Check(nccl_.ncclGroupEnd(), "ncclGroupEnd", handle_);
  return status.ok() ? ended : status;
}

Status NcclCommunicator::AsynchronousError() const {
  NcclResult error = 0;
  BYTEPS_RETURN_IF_ERROR(
      nccl_.Check(nccl_.ncclCommGetAsyncError(handle_, &error), "ncclCommGetAsyncError", handle_));
  return nccl_.Check(error, "NCCL", handle_);
}

Status NcclCommunicator::Finish() {
  const ScopedContext scope(*device_);
  BYTEPS_RETURN_IF_ERROR(scope.status());
  const NcclCommunicatorHandle ending = handle_;
  handle_ = nullptr;
  return nccl_.Check(nccl_.ncclCommDestroy(ending), "ncclCommDestroy", nullptr);
}

}  // namespace byteps

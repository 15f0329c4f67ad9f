// The kernels that hand TensorFlow's tensors to the engine, and its answers back to TensorFlow.
//
// Threads: ComputeAsync runs on TensorFlow's; it only enqueues. The engine completes an exchange on
// one of its own threads; TensorFlow runs what depends on it elsewhere, so engine threads are never
// held up.
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cc/engine/engine.h"
#include "cc/staging/gpu_exchanger.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "xla/stream_executor/stream.h"

namespace byteps {
namespace {

using ::tensorflow::AsyncOpKernel;
using ::tensorflow::CancellationManager;
using ::tensorflow::CancellationToken;
using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

constexpr int kValueInput = 1;  // input 0 is the token that orders uses of one name

absl::Status ToAbslStatus(const Status& status) {
  switch (status.code()) {
    case StatusCode::kOk:
      return absl::OkStatus();
    case StatusCode::kInvalidArgument:
      return absl::InvalidArgumentError(status.message());
    case StatusCode::kFailedPrecondition:
      return absl::FailedPreconditionError(status.message());
    case StatusCode::kUnavailable:
      return absl::UnavailableError(status.message());
    case StatusCode::kDeadlineExceeded:
      return absl::DeadlineExceededError(status.message());
    case StatusCode::kCancelled:
      return absl::CancelledError(status.message());
    case StatusCode::kResourceExhausted:
      return absl::ResourceExhaustedError(status.message());
    case StatusCode::kInternal:
      return absl::InternalError(status.message());
  }
  return absl::InternalError("unknown engine status: " + status.ToString());
}

absl::Status ToDType(tensorflow::DataType type, DType* dtype) {
  if (ParseDType(tensorflow::DataTypeString(type), dtype)) return absl::OkStatus();
  switch (type) {  // TensorFlow's own spellings
    case tensorflow::DT_FLOAT:
      *dtype = DType::kFloat32;
      return absl::OkStatus();
    case tensorflow::DT_DOUBLE:
      *dtype = DType::kFloat64;
      return absl::OkStatus();
    case tensorflow::DT_HALF:
      *dtype = DType::kFloat16;
      return absl::OkStatus();
    default:
      return absl::InvalidArgumentError("tf_byteps cannot exchange tensors of type " +
                                        tensorflow::DataTypeString(type));
  }
}

// One run of an operation. Owned by the engine's request and by the cancellation callback.
//
// The step may be cancelled while the exchange is pending (another operation of this worker
// failed). The operation then ends at once, because the others may never send what it waits for;
// the engine goes on with the buffers, which this object keeps alive. `context_` is null from the
// moment at which the operation has ended.
class PendingExchange : public std::enable_shared_from_this<PendingExchange> {
 public:
  PendingExchange(OpKernelContext* context, AsyncOpKernel::DoneCallback done)
      : context_(context),
        done_(std::move(done)),
        cancellation_(context->cancellation_manager()),
        input_(context->input(kValueInput)) {}

  const Tensor& input() const { return input_; }

  // For kinds whose output has the input's shape. The memory is new: outputs never alias inputs
  // (protocol rule 15).
  absl::Status AllocateOutput(void** data) {
    Tensor* output = nullptr;
    TF_RETURN_IF_ERROR(context_->allocate_output(0, input_.shape(), &output));
    output_ = *output;
    *data = output_.data();
    return absl::OkStatus();
  }

  // For kGather: any thread, before Finish. Null if the operation has ended or memory is short.
  void* AllocateGathered(const std::vector<int64_t>& rows) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (context_ == nullptr) return nullptr;
    int64_t total = 0;
    for (int64_t count : rows) total += count;
    TensorShape shape = input_.shape();
    shape.set_dim(0, total);
    Tensor* output = nullptr;
    if (!context_->allocate_output(0, shape, &output).ok()) return nullptr;
    output_ = *output;
    return output_.data() != nullptr ? output_.data() : &empty_output_;
  }

  // False if the step was cancelled before: the operation has ended and must not be enqueued.
  bool RegisterCancellation() {
    if (cancellation_ == nullptr) return true;
    token_ = cancellation_->get_cancellation_token();
    auto self = shared_from_this();
    if (cancellation_->RegisterCallback(token_, [self] { self->Cancel(); })) {
      registered_ = true;
      return true;
    }
    Cancel();
    return false;
  }

  void Finish(const absl::Status& status) {
    {
      // Cancel cannot end the operation while the lock is held, and the manager lives at least
      // until the operation ends. Deregistering must come before End for the same reason.
      std::lock_guard<std::mutex> lock(mutex_);
      if (context_ == nullptr) return;  // cancelled: the manager may be gone with the step
      // False if Cancel has been called and waits for the lock: it will end the operation.
      if (registered_ && !cancellation_->TryDeregisterCallback(token_)) return;
    }
    End(status);
  }

 private:
  void Cancel() {
    End(absl::CancelledError(
        "the step was cancelled while an exchange with the other workers was pending"));
  }

  void End(const absl::Status& status) {
    OpKernelContext* context = nullptr;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      std::swap(context, context_);
    }
    if (context == nullptr) return;
    if (!status.ok()) context->SetStatus(status);
    AsyncOpKernel::DoneCallback done = std::move(done_);
    done();
  }

  std::mutex mutex_;
  OpKernelContext* context_;  // guarded by mutex_
  AsyncOpKernel::DoneCallback done_;
  CancellationManager* cancellation_;
  CancellationToken token_ = CancellationManager::kInvalidToken;
  bool registered_ = false;
  const Tensor input_;
  Tensor output_;
  char empty_output_ = 0;  // somewhere to point to: null would mean "no memory"
};

// What the three operations have in common: a name, a type, a priority and the way to the engine.
class ExchangeOp : public AsyncOpKernel {
 public:
  explicit ExchangeOp(OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("tensor_name", &description_.name));
    OP_REQUIRES(
        context, !description_.name.empty() && description_.name.size() <= kMaxNameBytes,
        absl::InvalidArgumentError("tensor_name must have 1 to " + std::to_string(kMaxNameBytes) +
                                   " bytes, got " + std::to_string(description_.name.size())));
    tensorflow::DataType type;
    OP_REQUIRES_OK(context, context->GetAttr("T", &type));
    OP_REQUIRES_OK(context, ToDType(type, &description_.dtype));
    int64_t priority = kLearnedPriority;
    OP_REQUIRES_OK(context, context->GetAttr("priority", &priority));
    OP_REQUIRES(context,
                priority >= std::numeric_limits<int32_t>::min() &&
                    priority <= std::numeric_limits<int32_t>::max(),
                absl::InvalidArgumentError("priority of '" + description_.name +
                                           "' must fit 32 bits, got " + std::to_string(priority)));
    priority_ = static_cast<int32_t>(priority);
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) final {
    auto pending = std::make_shared<PendingExchange>(context, done);
    ExchangeRequest request;
    request.tensor = description_;
    const TensorShape& shape = pending->input().shape();
    for (int axis = 0; axis < shape.dims(); ++axis) {
      request.tensor.shape.push_back(shape.dim_size(axis));
    }
    request.priority = priority_;
    request.input = pending->input().data();
    OP_REQUIRES_OK_ASYNC(context, Prepare(pending, &request), done);
    EnqueueFunction enqueue;
    OP_REQUIRES_OK_ASYNC(context, FindWay(context, &enqueue), done);
    request.keep_alive = pending;
    request.done = [pending](const Status& status) { pending->Finish(ToAbslStatus(status)); };
    // From here on the operation may end, and `context` with it, at any time.
    if (pending->RegisterCancellation()) enqueue(std::move(request));
  }

 protected:
  // Fills in where the result goes: into memory of the input's shape, unless a kind needs another.
  virtual absl::Status Prepare(const std::shared_ptr<PendingExchange>& pending,
                               ExchangeRequest* request) {
    return pending->AllocateOutput(&request->output);
  }

  // How requests get to the engine from the memory of this kernel's device.
  using EnqueueFunction = std::function<void(ExchangeRequest)>;
  virtual absl::Status FindWay(OpKernelContext* context, EnqueueFunction* enqueue) {
    (void)context;
    *enqueue = Enqueue;
    return absl::OkStatus();
  }

  TensorDescription description_;  // all but the shape

 private:
  int32_t priority_ = kLearnedPriority;
};

class PushPullOp : public ExchangeOp {
 public:
  explicit PushPullOp(OpKernelConstruction* context) : ExchangeOp(context) {
    std::string op;
    OP_REQUIRES_OK(context, context->GetAttr("op", &op));
    description_.average = op == "average";
    OP_REQUIRES(context, !description_.average || IsFloating(description_.dtype),
                absl::InvalidArgumentError("'" + description_.name + "': an average of " +
                                           DTypeName(description_.dtype) +
                                           " is not exact; use op 'sum' and divide, or cast"));
    if (op == "min") description_.kind = ExchangeKind::kMin;
    if (op == "max") description_.kind = ExchangeKind::kMax;
  }
};

class BroadcastOp : public ExchangeOp {
 public:
  explicit BroadcastOp(OpKernelConstruction* context) : ExchangeOp(context) {
    description_.kind = ExchangeKind::kBroadcast;
    OP_REQUIRES_OK(context, context->GetAttr("root_rank", &description_.root_rank));
  }
};

class GatherOp : public ExchangeOp {
 public:
  explicit GatherOp(OpKernelConstruction* context) : ExchangeOp(context) {
    description_.kind = ExchangeKind::kGather;
  }

 protected:
  absl::Status Prepare(const std::shared_ptr<PendingExchange>& pending,
                       ExchangeRequest* request) override {
    if (request->tensor.shape.empty()) {
      return absl::InvalidArgumentError("'" + description_.name +
                                        "': a scalar has no axis 0 to gather along");
    }
    request->gather_rows = request->tensor.shape[0];
    request->tensor.shape[0] = -1;  // each worker's own
    request->allocate_output = [pending](const std::vector<int64_t>& rows) {
      return pending->AllocateGathered(rows);
    };
    return absl::OkStatus();
  }
};

// Reads where this process is in its job at the moment at which it runs: a graph that was traced or
// saved in another job is right in this one (protocol rule 16).
class PlaceOp : public OpKernel {
 public:
  explicit PlaceOp(OpKernelConstruction* context) : OpKernel(context) {
    std::string what;
    OP_REQUIRES_OK(context, context->GetAttr("what", &what));
    if (what == "size") number_ = &WorkerPlace::size;
    if (what == "local_rank") number_ = &WorkerPlace::local_rank;
    if (what == "local_size") number_ = &WorkerPlace::local_size;
  }

  void Compute(OpKernelContext* context) override {
    WorkerPlace place;
    OP_REQUIRES_OK(context, ToAbslStatus(CurrentPlace(&place)));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape(), &output));
    output->scalar<int32_t>()() = place.*number_;
  }

 private:
  int32_t WorkerPlace::* number_ = &WorkerPlace::rank;
};

// The same operation on tensors in a GPU's memory. Its output is allocated before the exchanger
// notes where the stream is: behind that point nothing that TensorFlow has put on the stream uses
// the memory any more. The operation ends when the result is there, and TensorFlow's stream waits
// for nothing.
template <typename Op>
class OnGpu : public Op {
 public:
  using Op::Op;

 protected:
  absl::Status FindWay(OpKernelContext* context, typename Op::EnqueueFunction* enqueue) override {
    // Virtual functions all the way: nothing of TensorFlow's GPU support is linked.
    const auto stream = static_cast<CudaStreamHandle>(
        context->op_device_context()->stream()->platform_specific_handle().stream);
    GpuExchanger* exchanger = nullptr;
    const Status status = GpuExchanger::OfStream(stream, &exchanger);
    *enqueue = [exchanger, stream](ExchangeRequest request) {
      exchanger->Enqueue(stream, std::move(request));
    };
    return ToAbslStatus(status);
  }
};

REGISTER_KERNEL_BUILDER(Name("BytePSPushPull").Device(tensorflow::DEVICE_CPU), PushPullOp);
REGISTER_KERNEL_BUILDER(Name("BytePSPushPull").Device(tensorflow::DEVICE_GPU).HostMemory("token"),
                        OnGpu<PushPullOp>);
REGISTER_KERNEL_BUILDER(Name("BytePSBroadcast").Device(tensorflow::DEVICE_CPU), BroadcastOp);
REGISTER_KERNEL_BUILDER(Name("BytePSBroadcast").Device(tensorflow::DEVICE_GPU).HostMemory("token"),
                        OnGpu<BroadcastOp>);
REGISTER_KERNEL_BUILDER(Name("BytePSGather").Device(tensorflow::DEVICE_CPU), GatherOp);
REGISTER_KERNEL_BUILDER(Name("BytePSGather").Device(tensorflow::DEVICE_GPU).HostMemory("token"),
                        OnGpu<GatherOp>);
REGISTER_KERNEL_BUILDER(Name("BytePSPlace").Device(tensorflow::DEVICE_CPU), PlaceOp);
REGISTER_KERNEL_BUILDER(Name("BytePSPlace").Device(tensorflow::DEVICE_GPU).HostMemory("number"),
                        PlaceOp);

}  // namespace
}  // namespace byteps

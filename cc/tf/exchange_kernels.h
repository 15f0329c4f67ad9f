// What the kernels of all exchanges share: the way of a tensor to the engine, and of its answer
// back to TensorFlow.
//
// Threads: ComputeAsync runs on TensorFlow's; it only enqueues. The engine completes an exchange on
// one of its own threads; TensorFlow runs what depends on it elsewhere, so engine threads are never
// held up.
#ifndef TF_BYTEPS_CC_TF_EXCHANGE_KERNELS_H_
#define TF_BYTEPS_CC_TF_EXCHANGE_KERNELS_H_

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

using ::tensorflow::AsyncOpKernel;
using ::tensorflow::CancellationManager;
using ::tensorflow::CancellationToken;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

constexpr int kValueInput = 1;  // input 0 is the token that orders uses of one name

inline absl::Status ToAbslStatus(const Status& status) {
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

inline absl::Status ToDType(tensorflow::DataType type, DType* dtype) {
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

// An operation that ends later, on a thread of the engine, or at once if its step is cancelled
// (another operation of this worker failed): then the others may never send what it waits for.
//
// Owned by whoever will end it and by the cancellation callback. `context_` is null from the moment
// at which the operation has ended.
class PendingOperation : public std::enable_shared_from_this<PendingOperation> {
 public:
  PendingOperation(OpKernelContext* context, AsyncOpKernel::DoneCallback done)
      : context_(context), done_(std::move(done)), cancellation_(context->cancellation_manager()) {}
  virtual ~PendingOperation() = default;

  // False if the step was cancelled before: the operation has ended and must not be begun.
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

  // Any thread, before End: `use` gets the context, unless the operation has ended.
  absl::Status WithContext(const std::function<absl::Status(OpKernelContext*)>& use) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (context_ == nullptr) return Cancelled();
    return use(context_);
  }

  void EndWith(const absl::Status& status) {
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
  static absl::Status Cancelled() {
    return absl::CancelledError(
        "the step was cancelled while an exchange with the other workers was pending");
  }

  void Cancel() { End(Cancelled()); }

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
};

// The memory of one exchange. The engine's request keeps it alive, so that the engine can go on
// with the buffers of an operation that has ended.
class ExchangeBuffers {
 public:
  explicit ExchangeBuffers(const Tensor& input) : dtype_(input.dtype()), input_(input) {}
  virtual ~ExchangeBuffers() = default;

  tensorflow::DataType dtype() const { return dtype_; }
  // Until DropInput, which comes after Finish.
  const Tensor& input() const { return input_; }
  void DropInput() { input_ = Tensor(); }
  const Tensor& output() const { return output_; }

  // For kinds whose output has the input's shape. The memory is new: outputs never alias inputs
  // (protocol rule 15).
  absl::Status AllocateOutput(void** data) {
    TF_RETURN_IF_ERROR(Allocate(input_.shape(), &output_));
    *data = output_.data();
    return absl::OkStatus();
  }

  // For kGather: any thread, before Finish. Null if the operation has ended or memory is short.
  void* AllocateGathered(const std::vector<int64_t>& rows) {
    int64_t total = 0;
    for (int64_t count : rows) total += count;
    TensorShape shape = input_.shape();
    shape.set_dim(0, total);
    if (!Allocate(shape, &output_).ok()) return nullptr;
    return output_.data() != nullptr ? output_.data() : &empty_output_;
  }

  // The exchange has ended; once.
  virtual void Finish(const absl::Status& status) = 0;

 protected:
  virtual absl::Status Allocate(const TensorShape& shape, Tensor* tensor) = 0;

 private:
  const tensorflow::DataType dtype_;
  Tensor input_;
  Tensor output_;
  char empty_output_ = 0;  // somewhere to point to: null would mean "no memory"
};

// An exchange whose operation waits for it.
class PendingExchange : public PendingOperation, public ExchangeBuffers {
 public:
  PendingExchange(OpKernelContext* context, AsyncOpKernel::DoneCallback done)
      : PendingOperation(context, std::move(done)), ExchangeBuffers(context->input(kValueInput)) {}

  void Finish(const absl::Status& status) override { EndWith(status); }

 protected:
  absl::Status Allocate(const TensorShape& shape, Tensor* tensor) override {
    return WithContext([&](OpKernelContext* context) {
      Tensor* output = nullptr;
      TF_RETURN_IF_ERROR(context->allocate_output(0, shape, &output));
      *tensor = *output;
      return absl::OkStatus();
    });
  }
};

// What all exchanges have in common: a name, a type, a priority and the way to the engine.
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
    int64_t priority = kBackwardOrder;
    OP_REQUIRES_OK(context, context->GetAttr("priority", &priority));
    OP_REQUIRES(context,
                priority >= std::numeric_limits<int32_t>::min() &&
                    priority <= std::numeric_limits<int32_t>::max(),
                absl::InvalidArgumentError("priority of '" + description_.name +
                                           "' must fit 32 bits, got " + std::to_string(priority)));
    priority_ = static_cast<int32_t>(priority);
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    auto pending = std::make_shared<PendingExchange>(context, done);
    ExchangeRequest request;
    EnqueueFunction enqueue;
    OP_REQUIRES_OK_ASYNC(context, MakeRequest(context, pending, &request, &enqueue), done);
    // From here on the operation may end, and `context` with it, at any time.
    if (pending->RegisterCancellation()) enqueue(std::move(request));
  }

 protected:
  // How requests get to the engine from the memory of this kernel's device.
  using EnqueueFunction = std::function<void(ExchangeRequest)>;

  // Describes the exchange of `buffers`, which it allocates and will finish.
  absl::Status MakeRequest(OpKernelContext* context,
                           const std::shared_ptr<ExchangeBuffers>& buffers,
                           ExchangeRequest* request, EnqueueFunction* enqueue) {
    request->tensor = description_;
    const TensorShape& shape = buffers->input().shape();
    for (int axis = 0; axis < shape.dims(); ++axis) {
      request->tensor.shape.push_back(shape.dim_size(axis));
    }
    request->priority = priority_;
    request->input = buffers->input().data();
    TF_RETURN_IF_ERROR(Prepare(buffers, request));
    request->keep_alive = buffers;
    request->drop_input = [buffers] { buffers->DropInput(); };
    request->done = [buffers](const Status& status) { buffers->Finish(ToAbslStatus(status)); };
    return FindWay(context, enqueue);
  }

  // Fills in where the result goes: into memory of the input's shape, unless a kind needs another.
  virtual absl::Status Prepare(const std::shared_ptr<ExchangeBuffers>& buffers,
                               ExchangeRequest* request) {
    return buffers->AllocateOutput(&request->output);
  }

  virtual absl::Status FindWay(OpKernelContext* context, EnqueueFunction* enqueue) {
    (void)context;
    *enqueue = Enqueue;
    return absl::OkStatus();
  }

  TensorDescription description_;  // all but the shape

 private:
  int32_t priority_ = kBackwardOrder;
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
    if (context->HasAttr("backup_workers")) {
      OP_REQUIRES_OK(context, context->GetAttr("backup_workers", &description_.backup_workers));
    }
    if (op == "min") description_.kind = ExchangeKind::kMin;
    if (op == "max") description_.kind = ExchangeKind::kMax;
  }
};

class GatherOp : public ExchangeOp {
 public:
  explicit GatherOp(OpKernelConstruction* context) : ExchangeOp(context) {
    description_.kind = ExchangeKind::kGather;
  }

 protected:
  absl::Status Prepare(const std::shared_ptr<ExchangeBuffers>& buffers,
                       ExchangeRequest* request) override {
    if (request->tensor.shape.empty()) {
      return absl::InvalidArgumentError("'" + description_.name +
                                        "': a scalar has no axis 0 to gather along");
    }
    request->gather_rows = request->tensor.shape[0];
    request->tensor.shape[0] = -1;  // each worker's own
    request->allocate_output = [buffers](const std::vector<int64_t>& rows) {
      return buffers->AllocateGathered(rows);
    };
    return absl::OkStatus();
  }
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

}  // namespace byteps

#endif  // TF_BYTEPS_CC_TF_EXCHANGE_KERNELS_H_

// What the kernels of all exchanges share: the way of a tensor to the engine, and of its answer
// back to TensorFlow.
//
// Threads: ComputeAsync runs on TensorFlow's; it only enqueues. The engine completes an exchange on
// one of its own threads; TensorFlow runs what depends on it elsewhere, so engine threads are never
// held up.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "cc/engine/engine.h"
#include "cc/staging/gpu_exchanger.h"
#include "cc/tf/attributes.h"
#include "cc/tf/profiler_activity.h"
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

  // The memory of an output of the operation, unless it has ended.
  absl::Status AllocateOutputOf(int index, const TensorShape& shape, Tensor* tensor) {
    return WithContext([&](OpKernelContext* context) {
      Tensor* output = nullptr;
      TF_RETURN_IF_ERROR(context->allocate_output(index, shape, &output));
      *tensor = *output;
      return absl::OkStatus();
    });
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
  void DropMemory() { input_ = output_ = Tensor(); }
  const Tensor& output() const { return output_; }

  // For kinds whose output has the input's shape. The memory is new: outputs never alias inputs
  // (protocol rule 15).
  absl::Status AllocateOutput(void** data) {
    TF_RETURN_IF_ERROR(Allocate(input_.shape(), &output_));
    *data = output_.data();
    return absl::OkStatus();
  }

  // If the tensor HasOwnRows: any thread, before Finish. Null if the operation has ended or memory
  // is short.
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
    return AllocateOutputOf(0, shape, tensor);
  }
};

// Describes the exchange of `buffers`, which it allocates and will finish: into memory of the
// input's shape, unless that HasOwnRows.
inline absl::Status MakeRequest(const NamedExchange& exchange,
                                const std::shared_ptr<ExchangeBuffers>& buffers,
                                ExchangeRequest* request) {
  request->tensor = exchange.tensor;
  const TensorShape& shape = buffers->input().shape();
  for (int axis = 0; axis < shape.dims(); ++axis) {
    request->tensor.shape.push_back(shape.dim_size(axis));
  }
  request->priority = exchange.priority;
  request->input = buffers->input().data();
  if (exchange.tensor.HasOwnRows()) {
    if (request->tensor.shape.empty()) {
      return absl::InvalidArgumentError("'" + exchange.tensor.name +
                                        "': a scalar has no rows; reshape it to [1]");
    }
    request->gather_rows = request->tensor.shape[0];
    request->tensor.shape[0] = -1;  // each worker's own
    request->allocate_output = [buffers](const std::vector<int64_t>& rows) {
      return buffers->AllocateGathered(rows);
    };
  } else {
    TF_RETURN_IF_ERROR(buffers->AllocateOutput(&request->output));
  }
  request->keep_alive = buffers;
  request->drop_input = [buffers] { buffers->DropInput(); };
  request->done = [buffers](const Status& status) { buffers->Finish(ToAbslStatus(status)); };
  ShowInProfiler(request);
  return absl::OkStatus();
}

// How requests get to the engine from the memory of a kernel's device.
using EnqueueFunction = std::function<void(ExchangeRequest)>;

// A kernel on tensors in the host's memory.
class HostKernel : public AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

 protected:
  virtual absl::Status FindWay(OpKernelContext* context, EnqueueFunction* enqueue) {
    (void)context;
    *enqueue = Enqueue;
    return absl::OkStatus();
  }
};

// What the operations of one exchange have in common.
class ExchangeOp : public HostKernel {
 public:
  ExchangeOp(OpKernelConstruction* context, ReadKind read_kind) : HostKernel(context) {
    OP_REQUIRES_OK(context, ReadExchange(context, read_kind, &exchange_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    auto pending = std::make_shared<PendingExchange>(context, done);
    ExchangeRequest request;
    EnqueueFunction enqueue;
    OP_REQUIRES_OK_ASYNC(context, MakeRequest(exchange_, pending, &request), done);
    OP_REQUIRES_OK_ASYNC(context, this->FindWay(context, &enqueue), done);
    // From here on the operation may end, and `context` with it, at any time.
    if (pending->RegisterCancellation()) enqueue(std::move(request));
  }

 protected:
  NamedExchange exchange_;
};

class PushPullOp : public ExchangeOp {
 public:
  explicit PushPullOp(OpKernelConstruction* context) : ExchangeOp(context, ReadReduction) {}
};

class StoreOp : public ExchangeOp {
 public:
  explicit StoreOp(OpKernelConstruction* context) : ExchangeOp(context, ReadStore) {}
};

class GatherOp : public ExchangeOp {
 public:
  explicit GatherOp(OpKernelConstruction* context) : ExchangeOp(context, ReadGather) {}
};

// Virtual functions all the way: nothing of TensorFlow's GPU support is linked.
inline CudaStreamHandle StreamOf(OpKernelContext* context) {
  return static_cast<CudaStreamHandle>(
      context->op_device_context()->stream()->platform_specific_handle().stream);
}

// The same operation on tensors in a GPU's memory. Its output is allocated before the exchanger
// notes where the stream is: behind that point nothing that TensorFlow has put on the stream uses
// the memory any more. The operation ends when the result is there, and TensorFlow's stream waits
// for nothing.
template <typename Op>
class OnGpu : public Op {
 public:
  using Op::Op;

 protected:
  absl::Status FindWay(OpKernelContext* context, EnqueueFunction* enqueue) override {
    const CudaStreamHandle stream = StreamOf(context);
    GpuExchanger* exchanger = nullptr;
    const Status status = GpuExchanger::OfStream(stream, &exchanger);
    *enqueue = [exchanger, stream](ExchangeRequest request) {
      exchanger->Enqueue(stream, std::move(request));
    };
    return ToAbslStatus(status);
  }
};

}  // namespace byteps

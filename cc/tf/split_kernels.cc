// Exchanges in two operations: one starts it and ends at once, the other waits for the result.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/tf/exchange_kernels.h"
#include "cc/tf/gpu_allocators.h"
#include "cc/tf/started_exchanges.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/partial_tensor_shape.h"
#include "tensorflow/core/framework/tensor.h"

namespace byteps {
namespace {

using ::tensorflow::AllocatorAttributes;
using ::tensorflow::OpKernel;

absl::Status StartExchange(OpKernelContext* context, int input, const NamedExchange& exchange,
                           const EnqueueFunction& enqueue) {
  auto started = std::make_shared<StartedExchange>(context->input(input),
                                                   context->get_allocator(AllocatorAttributes()));
  ExchangeRequest request;
  TF_RETURN_IF_ERROR(MakeRequest(exchange, started, &request));
  return AllStarted().Start(exchange.tensor.name, started,
                            [enqueue, request = std::move(request)] { enqueue(request); });
}

template <typename Op>
class StartOf : public Op {
 public:
  using Op::Op;

  void ComputeAsync(OpKernelContext* context, AsyncOpKernel::DoneCallback done) override {
    EnqueueFunction enqueue;
    OP_REQUIRES_OK_ASYNC(context, this->FindWay(context, &enqueue), done);
    OP_REQUIRES_OK_ASYNC(context, StartExchange(context, kValueInput, this->exchange_, enqueue),
                         done);
    done();
  }
};

// Starts several, of which XLA is told what is to come after them; here it comes when it likes.
class StartBeforeOp : public HostKernel {
 public:
  explicit StartBeforeOp(OpKernelConstruction* context) : HostKernel(context) {
    OP_REQUIRES_OK(context, ReadExchanges(context, &exchanges_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    EnqueueFunction enqueue;
    OP_REQUIRES_OK_ASYNC(context, FindWay(context, &enqueue), done);
    const auto count = static_cast<int>(exchanges_.size());
    for (int i = 0; i < count; ++i) {
      OP_REQUIRES_OK_ASYNC(context, StartExchange(context, count + i, exchanges_[i], enqueue),
                           done);
    }
    for (int i = 2 * count; i < context->num_inputs(); ++i)
      context->set_output(i - 2 * count, context->input(i));
    done();
  }

 private:
  std::vector<NamedExchange> exchanges_;
};

// Ends with the exchange that was started under a name, and outputs its result.
class WaitOp : public AsyncOpKernel {
 public:
  explicit WaitOp(OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("tensor_name", &name_));
    OP_REQUIRES_OK(context, context->GetAttr("T", &type_));
    OP_REQUIRES_OK(context, context->GetAttr("shape", &shape_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    std::shared_ptr<StartedExchange> started;
    OP_REQUIRES_OK_ASYNC(context, AllStarted().Take(name_, type_, &started), done);
    auto pending = std::make_shared<PendingOperation>(context, done);
    if (!pending->RegisterCancellation()) return;
    // From here on the operation may end, and `context` and the kernel with it, at any time.
    started->WhenFinished([pending, started, shape = shape_](const absl::Status& status) {
      pending->EndWith(status.ok() ? Output(*pending, started->output(), shape) : status);
    });
  }

 private:
  static absl::Status Output(PendingOperation& pending, const Tensor& result,
                             const tensorflow::PartialTensorShape& expected) {
    return pending.WithContext([&](OpKernelContext* context) -> absl::Status {
      TF_RETURN_IF_ERROR(CheckResultShape(result, expected));
      context->set_output(0, result);
      return absl::OkStatus();
    });
  }

  std::string name_;
  tensorflow::DataType type_;
  tensorflow::PartialTensorShape shape_;
};

class ForgetOp : public OpKernel {
 public:
  explicit ForgetOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("tensor_names", &names_));
  }

  void Compute(OpKernelContext* context) override {
    (void)context;
    for (const std::string& name : names_) AllStarted().Forget(name);
  }

 private:
  std::vector<std::string> names_;
};

// Where hand-overs of compiled programs get memory on this GPU.
class NoteAllocatorOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    AllGpuAllocators().Note(StreamOf(context), context->get_allocator(AllocatorAttributes()));
  }
};

class StartsAndWaitsOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    Tensor* count = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape(), &count));
    count->scalar<int64_t>()() = AllStarted().starts_and_waits();
  }
};

REGISTER_KERNEL_BUILDER(Name("BytePSPushPullStart").Device(tensorflow::DEVICE_CPU),
                        StartOf<PushPullOp>);
REGISTER_KERNEL_BUILDER(
    Name("BytePSPushPullStart").Device(tensorflow::DEVICE_GPU).HostMemory("token"),
    StartOf<OnGpu<PushPullOp>>);
REGISTER_KERNEL_BUILDER(Name("BytePSPushPullStartBefore").Device(tensorflow::DEVICE_CPU),
                        StartBeforeOp);
REGISTER_KERNEL_BUILDER(
    Name("BytePSPushPullStartBefore").Device(tensorflow::DEVICE_GPU).HostMemory("tokens"),
    OnGpu<StartBeforeOp>);
REGISTER_KERNEL_BUILDER(Name("BytePSNoteAllocator").Device(tensorflow::DEVICE_GPU),
                        NoteAllocatorOp);
REGISTER_KERNEL_BUILDER(Name("BytePSGatherStart").Device(tensorflow::DEVICE_CPU),
                        StartOf<GatherOp>);
REGISTER_KERNEL_BUILDER(
    Name("BytePSGatherStart").Device(tensorflow::DEVICE_GPU).HostMemory("token"),
    StartOf<OnGpu<GatherOp>>);
REGISTER_KERNEL_BUILDER(Name("BytePSWait").Device(tensorflow::DEVICE_CPU), WaitOp);
REGISTER_KERNEL_BUILDER(Name("BytePSWait").Device(tensorflow::DEVICE_GPU).HostMemory("token"),
                        WaitOp);
REGISTER_KERNEL_BUILDER(Name("BytePSForget").Device(tensorflow::DEVICE_CPU), ForgetOp);
REGISTER_KERNEL_BUILDER(Name("BytePSStartsAndWaits").Device(tensorflow::DEVICE_CPU),
                        StartsAndWaitsOp);

}  // namespace
}  // namespace byteps

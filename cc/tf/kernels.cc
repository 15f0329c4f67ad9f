// The operations that end with their exchange, and the one that tells a worker's place.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cc/base/clock.h"
#include "cc/engine/engine.h"
#include "cc/tf/exchange_kernels.h"
#include "cc/xla/rank_info.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace byteps {
namespace {

using ::tensorflow::OpKernel;

class BroadcastOp : public ExchangeOp {
 public:
  explicit BroadcastOp(OpKernelConstruction* context) : ExchangeOp(context, ReadBroadcast) {}
};

// The one exchange with two inputs and two outputs.
class AllToAllOp : public ExchangeOp {
 public:
  explicit AllToAllOp(OpKernelConstruction* context) : ExchangeOp(context, ReadAllToAll) {}

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    auto pending = std::make_shared<PendingExchange>(context, done);
    ExchangeRequest request;
    OP_REQUIRES_OK_ASYNC(context, MakeRequest(exchange_, pending, &request), done);
    const Tensor& splits = context->input(kSplitsInput);
    const auto* const rows = splits.flat<int64_t>().data();
    request.splits.assign(rows, rows + splits.NumElements());
    request.allocate_output = [pending, allocate = std::move(request.allocate_output)](
                                  const std::vector<int64_t>& received) -> void* {
      Tensor output;
      const TensorShape shape({static_cast<int64_t>(received.size())});
      if (!pending->AllocateOutputOf(kReceivedSplitsOutput, shape, &output).ok()) return nullptr;
      std::copy(received.begin(), received.end(), output.flat<int64_t>().data());
      return allocate(received);
    };
    // From here on the operation may end, and `context` with it, at any time.
    if (pending->RegisterCancellation()) Enqueue(std::move(request));
  }

 private:
  static constexpr int kSplitsInput = 2;
  static constexpr int kReceivedSplitsOutput = 1;
};

// Several exchanges of one operation, which ends with the last of them, or the first that fails.
class PendingGroup : public PendingOperation {
 public:
  PendingGroup(OpKernelContext* context, AsyncOpKernel::DoneCallback done, int count)
      : PendingOperation(context, std::move(done)), left_(count) {}

  void FinishOne(const absl::Status& status) {
    if (--left_ == 0 || !status.ok()) EndWith(status);
  }

 private:
  std::atomic<int> left_;
};

class ExchangeOfGroup : public ExchangeBuffers {
 public:
  ExchangeOfGroup(std::shared_ptr<PendingGroup> group, const Tensor& input, int index)
      : ExchangeBuffers(input), group_(std::move(group)), index_(index) {}

  void Finish(const absl::Status& status) override { group_->FinishOne(status); }

 protected:
  absl::Status Allocate(const TensorShape& shape, Tensor* tensor) override {
    return group_->AllocateOutputOf(index_, shape, tensor);
  }

 private:
  const std::shared_ptr<PendingGroup> group_;
  const int index_;
};

// Here it starts when all its inputs are there. It is made for XLA, which lets each exchange start
// by itself (xla_kernels.cc), but a function that was traced for XLA may be called elsewhere.
class PushPullAllOp : public HostKernel {
 public:
  explicit PushPullAllOp(OpKernelConstruction* context) : HostKernel(context) {
    OP_REQUIRES_OK(context, ReadExchanges(context, &exchanges_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    const int count = static_cast<int>(exchanges_.size());
    auto pending = std::make_shared<PendingGroup>(context, done, count);
    EnqueueFunction enqueue;
    OP_REQUIRES_OK_ASYNC(context, FindWay(context, &enqueue), done);
    std::vector<ExchangeRequest> requests(count);
    const int tokens = context->num_inputs() - count;
    for (int i = 0; i < count; ++i) {
      const Tensor& input = context->input(tokens + i);
      OP_REQUIRES_OK_ASYNC(
          context,
          MakeRequest(exchanges_[i], std::make_shared<ExchangeOfGroup>(pending, input, i),
                      &requests[i]),
          done);
    }
    // From here on the operation may end, and `context` and the kernel with it, at any time.
    if (!pending->RegisterCancellation()) return;
    for (ExchangeRequest& request : requests) enqueue(std::move(request));
  }

 private:
  std::vector<NamedExchange> exchanges_;
};

class PlaceOp : public OpKernel {
 public:
  explicit PlaceOp(OpKernelConstruction* context) : OpKernel(context) {
    std::string what;
    OP_REQUIRES_OK(context, context->GetAttr("what", &what));
    index_ = PlaceIndex(what);
  }

  void Compute(OpKernelContext* context) override {
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape(), &output));
    OP_REQUIRES_OK(context, ToAbslStatus(ReadPlace(index_, &output->scalar<int32_t>()())));
  }

 private:
  int64_t index_ = 0;
};

class StartBeforeOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    for (int i = 0; i < context->num_inputs(); ++i) context->set_output(i, context->input(i));
  }
};

// Without XLA, TensorFlow's own order is kept.
class OrderAfterOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext*) override {}
};

class NoteBatchOp : public OpKernel {
 public:
  explicit NoteBatchOp(OpKernelConstruction* context) : OpKernel(context) {}

  void Compute(OpKernelContext* context) override {
    const int64_t began = context->input(1).scalar<int64_t>()();
    const int64_t samples = context->input(2).scalar<int64_t>()();
    const int64_t now = WallNanos();
    if (began != 0) NoteBatch(began, now, static_cast<uint64_t>(std::max<int64_t>(0, samples)));
    Tensor* output = nullptr;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape(), &output));
    output->scalar<int64_t>()() = now;
  }
};

REGISTER_KERNEL_BUILDER(Name("BytePSPushPull").Device(tensorflow::DEVICE_CPU), PushPullOp);
REGISTER_KERNEL_BUILDER(Name("BytePSPushPull").Device(tensorflow::DEVICE_GPU).HostMemory("token"),
                        OnGpu<PushPullOp>);
REGISTER_KERNEL_BUILDER(Name("BytePSPushPullAll").Device(tensorflow::DEVICE_CPU), PushPullAllOp);
REGISTER_KERNEL_BUILDER(
    Name("BytePSPushPullAll").Device(tensorflow::DEVICE_GPU).HostMemory("tokens"),
    OnGpu<PushPullAllOp>);
REGISTER_KERNEL_BUILDER(Name("BytePSBroadcast").Device(tensorflow::DEVICE_CPU), BroadcastOp);
REGISTER_KERNEL_BUILDER(Name("BytePSBroadcast").Device(tensorflow::DEVICE_GPU).HostMemory("token"),
                        OnGpu<BroadcastOp>);
REGISTER_KERNEL_BUILDER(Name("BytePSStore").Device(tensorflow::DEVICE_CPU), StoreOp);
REGISTER_KERNEL_BUILDER(Name("BytePSGather").Device(tensorflow::DEVICE_CPU), GatherOp);
REGISTER_KERNEL_BUILDER(Name("BytePSGather").Device(tensorflow::DEVICE_GPU).HostMemory("token"),
                        OnGpu<GatherOp>);
REGISTER_KERNEL_BUILDER(Name("BytePSAllToAll").Device(tensorflow::DEVICE_CPU), AllToAllOp);
REGISTER_KERNEL_BUILDER(Name("BytePSAllToAll")
                            .Device(tensorflow::DEVICE_GPU)
                            .HostMemory("token")
                            .HostMemory("value")
                            .HostMemory("splits")
                            .HostMemory("result")
                            .HostMemory("received_splits"),
                        AllToAllOp);
REGISTER_KERNEL_BUILDER(Name("BytePSPlace").Device(tensorflow::DEVICE_CPU), PlaceOp);
REGISTER_KERNEL_BUILDER(Name("BytePSPlace").Device(tensorflow::DEVICE_GPU).HostMemory("number"),
                        PlaceOp);
REGISTER_KERNEL_BUILDER(Name("BytePSStartBefore").Device(tensorflow::DEVICE_CPU), StartBeforeOp);
REGISTER_KERNEL_BUILDER(Name("BytePSStartBefore").Device(tensorflow::DEVICE_GPU), StartBeforeOp);
REGISTER_KERNEL_BUILDER(Name("BytePSOrderAfter").Device(tensorflow::DEVICE_CPU), OrderAfterOp);
REGISTER_KERNEL_BUILDER(Name("BytePSOrderAfter").Device(tensorflow::DEVICE_GPU), OrderAfterOp);
REGISTER_KERNEL_BUILDER(Name("BytePSNoteBatch").Device(tensorflow::DEVICE_CPU), NoteBatchOp);
REGISTER_KERNEL_BUILDER(Name("BytePSNoteBatch")
                            .Device(tensorflow::DEVICE_GPU)
                            .HostMemory("iterator")
                            .HostMemory("began")
                            .HostMemory("samples")
                            .HostMemory("now"),
                        NoteBatchOp);

}  // namespace
}  // namespace byteps

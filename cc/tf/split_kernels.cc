// Exchanges in two operations: one starts it and ends at once, the other waits for the result. In
// between the exchange belongs to nobody's step, so that it can outlast the one that started it.
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cc/tf/exchange_kernels.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/partial_tensor_shape.h"
#include "tensorflow/core/framework/tensor.h"

namespace byteps {
namespace {

using ::tensorflow::Allocator;
using ::tensorflow::AllocatorAttributes;
using ::tensorflow::OpKernel;

// An exchange that has been started. Thread-safe.
class StartedExchange : public ExchangeBuffers {
 public:
  // `allocator` is the device's, which outlives every step.
  StartedExchange(const Tensor& input, Allocator* allocator)
      : ExchangeBuffers(input), allocator_(allocator) {}

  void Finish(const absl::Status& status) override {
    std::function<void(const absl::Status&)> waiter;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      finished_ = true;
      status_ = status;
      waiter = std::move(waiter_);
    }
    if (waiter) waiter(status);
  }

  // Calls `waiter` when the exchange has ended, perhaps at once. At most one waits.
  void WhenFinished(std::function<void(const absl::Status&)> waiter) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!finished_) {
        waiter_ = std::move(waiter);
        return;
      }
    }
    waiter(status_);
  }

 protected:
  absl::Status Allocate(const TensorShape& shape, Tensor* tensor) override {
    *tensor = Tensor(allocator_, dtype(), shape);
    if (tensor->IsInitialized()) return absl::OkStatus();
    return absl::ResourceExhaustedError(
        "no memory for the result of an exchange, a tensor of shape " + shape.DebugString());
  }

 private:
  Allocator* const allocator_;
  std::mutex mutex_;
  bool finished_ = false;
  absl::Status status_;  // does not change after `finished_`
  std::function<void(const absl::Status&)> waiter_;
};

// The started exchanges of this process that nobody waits for yet, by name. One that is forgotten
// here goes on in the engine, as those of other workers need it, and its result is dropped.
class StartedExchanges {
 public:
  // False if there is one of this name.
  bool Add(const std::string& name, std::shared_ptr<StartedExchange> exchange) {
    std::lock_guard<std::mutex> lock(mutex_);
    return exchanges_.emplace(name, std::move(exchange)).second;
  }

  // Null if there is none of this name.
  std::shared_ptr<StartedExchange> Take(const std::string& name) {
    std::lock_guard<std::mutex> lock(mutex_);
    const auto found = exchanges_.find(name);
    if (found == exchanges_.end()) return nullptr;
    std::shared_ptr<StartedExchange> exchange = std::move(found->second);
    exchanges_.erase(found);
    return exchange;
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<StartedExchange>> exchanges_;
};

StartedExchanges& AllStarted() {
  static auto* const all = new StartedExchanges;  // engine threads may outlive static objects
  return *all;
}

template <typename Op>
class StartOf : public Op {
 public:
  using Op::Op;

  void ComputeAsync(OpKernelContext* context, AsyncOpKernel::DoneCallback done) override {
    auto started = std::make_shared<StartedExchange>(context->input(kValueInput),
                                                     context->get_allocator(AllocatorAttributes()));
    ExchangeRequest request;
    EnqueueFunction enqueue;
    OP_REQUIRES_OK_ASYNC(context, MakeRequest(this->exchange_, started, &request), done);
    OP_REQUIRES_OK_ASYNC(context, this->FindWay(context, &enqueue), done);
    const std::string& name = this->exchange_.tensor.name;
    OP_REQUIRES_ASYNC(context, AllStarted().Add(name, started),
                      absl::FailedPreconditionError("the exchange '" + name +
                                                    "' was started before and nobody has waited "
                                                    "for it"),
                      done);
    enqueue(std::move(request));
    done();
  }
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
    std::shared_ptr<StartedExchange> started = AllStarted().Take(name_);
    OP_REQUIRES_ASYNC(
        context, started != nullptr,
        absl::FailedPreconditionError("nobody has started the exchange '" + name_ + "'"), done);
    OP_REQUIRES_ASYNC(context, started->dtype() == type_,
                      absl::InvalidArgumentError("the exchange '" + name_ + "' was started with " +
                                                 tensorflow::DataTypeString(started->dtype()) +
                                                 ", not with " + tensorflow::DataTypeString(type_)),
                      done);
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
      if (!expected.IsCompatibleWith(result.shape())) {
        return absl::InvalidArgumentError("an exchange has a result of shape " +
                                          result.shape().DebugString() + ", not " +
                                          expected.DebugString());
      }
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
    for (const std::string& name : names_) AllStarted().Take(name);
  }

 private:
  std::vector<std::string> names_;
};

REGISTER_KERNEL_BUILDER(Name("BytePSPushPullStart").Device(tensorflow::DEVICE_CPU),
                        StartOf<PushPullOp>);
REGISTER_KERNEL_BUILDER(
    Name("BytePSPushPullStart").Device(tensorflow::DEVICE_GPU).HostMemory("token"),
    StartOf<OnGpu<PushPullOp>>);
REGISTER_KERNEL_BUILDER(Name("BytePSGatherStart").Device(tensorflow::DEVICE_CPU),
                        StartOf<GatherOp>);
REGISTER_KERNEL_BUILDER(
    Name("BytePSGatherStart").Device(tensorflow::DEVICE_GPU).HostMemory("token"),
    StartOf<OnGpu<GatherOp>>);
REGISTER_KERNEL_BUILDER(Name("BytePSWait").Device(tensorflow::DEVICE_CPU), WaitOp);
REGISTER_KERNEL_BUILDER(Name("BytePSWait").Device(tensorflow::DEVICE_GPU).HostMemory("token"),
                        WaitOp);
REGISTER_KERNEL_BUILDER(Name("BytePSForget").Device(tensorflow::DEVICE_CPU), ForgetOp);

}  // namespace
}  // namespace byteps

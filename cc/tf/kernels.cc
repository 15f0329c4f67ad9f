// The operations that end with their exchange, and the one that tells a worker's place.
#include <cstdint>
#include <string>

#include "cc/engine/engine.h"
#include "cc/tf/exchange_kernels.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace byteps {
namespace {

using ::tensorflow::OpKernel;

class BroadcastOp : public ExchangeOp {
 public:
  explicit BroadcastOp(OpKernelConstruction* context) : ExchangeOp(context) {
    description_.kind = ExchangeKind::kBroadcast;
    OP_REQUIRES_OK(context, context->GetAttr("root_rank", &description_.root_rank));
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

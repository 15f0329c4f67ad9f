// A worker's rows of a batch, copied out of it.
#include <cstdint>
#include <cstring>

#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/types.h"

namespace byteps {
namespace {

using ::tensorflow::AllocationAttributes;
using ::tensorflow::AllocatorAttributes;
using ::tensorflow::OpKernel;
using ::tensorflow::OpKernelConstruction;
using ::tensorflow::OpKernelContext;
using ::tensorflow::Tensor;
using ::tensorflow::TensorShape;

// One thread of TensorFlow's copies this much at a time.
constexpr int64_t kBlockBytes = 1 << 20;

// Page-locked memory where there is a GPU: from other memory CUDA copies through a buffer of its
// own, and launches no kernel of this process meanwhile. If no more can be locked, any memory will
// do. Without a GPU both are the same.
absl::Status AllocateForGpu(OpKernelContext* context, tensorflow::DataType type,
                            const TensorShape& shape, Tensor* rows) {
  AllocatorAttributes locked;
  locked.set_gpu_compatible(true);
  AllocationAttributes once;
  once.retry_on_failure = false;
  if (context->allocate_temp(type, shape, rows, locked, once).ok()) return absl::OkStatus();
  return context->allocate_temp(type, shape, rows);
}

class CopyRowsOp : public OpKernel {
 public:
  explicit CopyRowsOp(OpKernelConstruction* context) : OpKernel(context) {
    OP_REQUIRES(context, tensorflow::DataTypeCanUseMemcpy(context->input_type(0)),
                absl::InvalidArgumentError("rows of this type cannot be copied as bytes"));
  }

  void Compute(OpKernelContext* context) override {
    const Tensor& value = context->input(0);
    const int64_t begin = context->input(1).scalar<int64_t>()();
    const int64_t end = context->input(2).scalar<int64_t>()();
    OP_REQUIRES(context, value.dims() >= 1, absl::InvalidArgumentError("a scalar has no rows"));
    OP_REQUIRES(
        context, 0 <= begin && begin <= end && end <= value.dim_size(0),
        absl::InvalidArgumentError(absl::StrCat(
            "rows ", begin, " to ", end, " of a tensor of shape ", value.shape().DebugString())));
    TensorShape shape = value.shape();
    shape.set_dim(0, end - begin);
    Tensor rows;
    OP_REQUIRES_OK(context, AllocateForGpu(context, value.dtype(), shape, &rows));
    const auto bytes = static_cast<int64_t>(rows.TotalBytes());
    if (bytes > 0) {
      const auto* const from =
          static_cast<const char*>(value.data()) + bytes / (end - begin) * begin;
      Copy(context, from, static_cast<char*>(rows.data()), bytes);
    }
    context->set_output(0, rows);
  }

 private:
  static void Copy(OpKernelContext* context, const char* from, char* to, int64_t bytes) {
    const auto* const threads = context->device()->tensorflow_cpu_worker_threads();
    const auto blocks = tsl::thread::ThreadPool::SchedulingParams::Fixed(kBlockBytes);
    threads->workers->ParallelFor(bytes, blocks, [from, to](int64_t begin, int64_t end) {
      std::memcpy(to + begin, from + begin, end - begin);
    });
  }
};

REGISTER_KERNEL_BUILDER(Name("BytePSCopyRows").Device(tensorflow::DEVICE_CPU), CopyRowsOp);

}  // namespace
}  // namespace byteps

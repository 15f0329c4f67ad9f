// Fused attention: scores, softmax and weighted sum in one kernel of cuDNN's, which never writes
// the scores to memory (FlashAttention, https://arxiv.org/abs/2205.14135). XLA for GPUs knows calls
// of cuDNN by name and compiles them; TensorFlow has no operation that becomes one. Only compilers:
// the operations have no kernels, and none for CPUs.
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tensorflow/compiler/tf2xla/xla_op_kernel.h"
#include "tensorflow/compiler/tf2xla/xla_op_registry.h"
#include "xla/hlo/builder/xla_builder.h"

// GCC 12 does not see that moving an xla::ShapeIndex moves what it has.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"

namespace byteps {
namespace {

using ::tensorflow::OpKernelConstruction;
using ::tensorflow::XlaOpKernel;
using ::tensorflow::XlaOpKernelContext;
using xla::Shape;
using xla::ShapeUtil;
using xla::XlaOp;

// Which axes a product of two tensors contracts, and which it keeps apart: (batch, length, heads,
// width) for queries, keys and values, (batch, heads, query, key) for scores.
struct Product {
  const char* name;
  int left, right;
  std::vector<int> left_batch, right_batch;
};

const std::vector<Product>& ForwardProducts() {
  static const auto* const products = new std::vector<Product>{
      {"bmm1", 3, 3, {0, 2}, {0, 2}},  // queries with keys
      {"bmm2", 3, 1, {0, 1}, {0, 2}},  // probabilities with values
  };
  return *products;
}

const std::vector<Product>& BackwardProducts() {
  static const auto* const products = new std::vector<Product>{
      {"bmm1_grad_gemm1", 2, 1, {0, 1}, {0, 2}},  // scores' gradient with queries
      {"bmm1_grad_gemm2", 3, 1, {0, 1}, {0, 2}},  // scores' gradient with keys
      {"bmm2_grad_gemm1", 2, 1, {0, 1}, {0, 2}},  // probabilities with the output's gradient
      {"bmm2_grad_gemm2", 3, 3, {0, 2}, {0, 2}},  // the output's gradient with values
  };
  return *products;
}

std::string ToJson(const Product& product) {
  return absl::StrCat("\"", product.name, "_dot_dimension_numbers\":{",
                      "\"lhs_contracting_dimensions\":[", product.left, "],",
                      "\"rhs_contracting_dimensions\":[", product.right, "],",
                      "\"lhs_batch_dimensions\":[", absl::StrJoin(product.left_batch, ","), "],",
                      "\"rhs_batch_dimensions\":[", absl::StrJoin(product.right_batch, ","), "]}");
}

struct Sizes {
  int64_t batch = 0, queries = 0, keys = 0, heads = 0, width = 0;
  xla::PrimitiveType type = xla::BF16;

  Shape Output(int64_t length) const {
    // As cuDNN describes it, (batch, heads, length, width), in memory as the inputs lie there.
    return ShapeUtil::MakeShapeWithDenseLayout(type, {batch, heads, length, width}, {3, 1, 2, 0});
  }
  Shape Statistics() const { return ShapeUtil::MakeShape(xla::F32, {batch, heads, queries}); }
};

// What XLA is told of a call: its GpuBackendConfig as JSON.
std::string ToConfig(const Sizes& sizes, float scale, bool is_causal,
                     const std::vector<Product>& products) {
  const std::vector<int64_t> scores = {sizes.batch, sizes.heads, sizes.queries, sizes.keys};
  std::vector<std::string> described;
  for (const Product& product : products) described.push_back(ToJson(product));
  return absl::StrCat(
      "{\"operation_queue_id\":0,\"cudnn_fmha_backend_config\":{",
      "\"algorithm\":{\"algo_id\":0,\"math_type\":\"TENSOR_OP_MATH\",\"is_cudnn_frontend\":true},",
      "\"fmha_scale\":", absl::StrFormat("%.17g", scale), ",\"dropout_rate\":0,",
      "\"intermediate_tensor_shape\":{\"element_type\":\"",
      sizes.type == xla::BF16 ? "BF16" : "F16", "\",\"dimensions\":[", absl::StrJoin(scores, ","),
      "],\"layout\":{\"minor_to_major\":[3,2,1,0]},",
      "\"is_dynamic_dimension\":[false,false,false,false]},",
      "\"is_flash_attention\":true,\"mask_type\":\"", is_causal ? "CAUSAL" : "NO_MASK", "\",",
      absl::StrJoin(described, ","), "}}");
}

absl::Status ReadSizes(XlaOpKernelContext* context, Sizes* sizes) {
  const absl::StatusOr<Shape> query = context->InputXlaShape(0);
  TF_RETURN_IF_ERROR(query.status());
  const absl::StatusOr<Shape> key = context->InputXlaShape(1);
  TF_RETURN_IF_ERROR(key.status());
  const absl::StatusOr<Shape> value = context->InputXlaShape(2);
  TF_RETURN_IF_ERROR(value.status());
  const bool fits = query->is_static() && key->is_static() && query->dimensions().size() == 4 &&
                    key->dimensions().size() == 4 && *key == *value &&
                    query->dimensions(0) == key->dimensions(0) &&
                    query->dimensions(2) == key->dimensions(2) &&
                    query->dimensions(3) == key->dimensions(3);
  if (!fits) {
    return absl::InvalidArgumentError(absl::StrCat("fused attention got a query of shape ",
                                                   query->ToString(), ", keys of ", key->ToString(),
                                                   " and values of ", value->ToString(),
                                                   "; all must have a shape (batch, length, heads, "
                                                   "width) that is known when XLA compiles, and "
                                                   "differ at most in their length"));
  }
  *sizes = {query->dimensions(0), query->dimensions(1), key->dimensions(1),
            query->dimensions(2), query->dimensions(3), query->element_type()};
  return absl::OkStatus();
}

// A worker without rows has nothing to compute, and cuDNN refuses it.
bool IsEmpty(const Sizes& sizes) {
  return sizes.batch * sizes.queries * sizes.keys * sizes.heads * sizes.width == 0;
}

// The parts of a call's result, without the last one: cuDNN's room to work in, which XLA enlarges.
absl::Status Call(XlaOpKernelContext* context, const std::string& target,
                  const std::vector<XlaOp>& operands, std::vector<Shape> results,
                  const std::string& config, bool is_empty, std::vector<XlaOp>* parts) {
  xla::XlaBuilder* const builder = context->builder();
  if (is_empty) {
    for (const Shape& result : results) {
      const XlaOp zero =
          xla::ConvertElementType(xla::ConstantR0<float>(builder, 0), result.element_type());
      parts->push_back(xla::Broadcast(zero, result.dimensions()));
    }
    return absl::OkStatus();
  }
  std::vector<Shape> shapes;  // rows one after the other, whatever XLA would choose
  for (const XlaOp& operand : operands) {
    const absl::StatusOr<Shape> shape = builder->GetShape(operand);
    TF_RETURN_IF_ERROR(shape.status());
    shapes.push_back(ShapeUtil::MakeShape(shape->element_type(), shape->dimensions()));
  }
  results.push_back(ShapeUtil::MakeShape(xla::U8, {0}));
  const XlaOp call = xla::CustomCallWithLayout(
      builder, target, operands, ShapeUtil::MakeTupleShape(results), shapes, config,
      /*has_side_effect=*/false, {}, nullptr, xla::CustomCallSchedule::SCHEDULE_NONE,
      xla::CustomCallApiVersion::API_VERSION_STATUS_RETURNING);
  for (size_t i = 0; i + 1 < results.size(); ++i)
    parts->push_back(xla::GetTupleElement(call, static_cast<int64_t>(i)));
  return absl::OkStatus();
}

// From cuDNN's order of axes to that of the operations.
XlaOp Ordered(XlaOp result) { return xla::Transpose(result, {0, 2, 1, 3}); }

class AttentionCompiler : public XlaOpKernel {
 public:
  explicit AttentionCompiler(OpKernelConstruction* context) : XlaOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("scale", &scale_));
    OP_REQUIRES_OK(context, context->GetAttr("is_causal", &is_causal_));
  }

 protected:
  std::string Config(const Sizes& sizes, const std::vector<Product>& products) const {
    return ToConfig(sizes, scale_, is_causal_, products);
  }

 private:
  float scale_ = 1;
  bool is_causal_ = false;
};

class ForwardCompiler : public AttentionCompiler {
 public:
  using AttentionCompiler::AttentionCompiler;

  void Compile(XlaOpKernelContext* context) override {
    Sizes sizes;
    OP_REQUIRES_OK(context, ReadSizes(context, &sizes));
    std::vector<XlaOp> operands;
    for (int i = 0; i < context->num_inputs(); ++i) operands.push_back(context->Input(i));
    const bool has_bias = operands.size() > 3;
    std::vector<XlaOp> parts;
    OP_REQUIRES_OK(context,
                   Call(context, has_bias ? "__cudnn$fmhaScaleBiasSoftmax" : "__cudnn$fmhaSoftmax",
                        operands, {sizes.Output(sizes.queries), sizes.Statistics()},
                        Config(sizes, ForwardProducts()), IsEmpty(sizes), &parts));
    context->SetOutput(0, Ordered(parts[0]));
    context->SetOutput(1, parts[1]);
  }
};

// Inputs: query, key, value, bias (or none), statistics, output, the output's gradient.
class BackwardCompiler : public AttentionCompiler {
 public:
  using AttentionCompiler::AttentionCompiler;

  void Compile(XlaOpKernelContext* context) override {
    Sizes sizes;
    OP_REQUIRES_OK(context, ReadSizes(context, &sizes));
    const int last = context->num_inputs() - 1;
    const bool has_bias = last > 5;
    std::vector<XlaOp> operands = {context->Input(0), context->Input(1), context->Input(2),
                                   context->Input(last - 2), context->Input(last)};
    if (has_bias) operands.push_back(context->Input(3));
    operands.push_back(context->Input(last - 1));
    std::vector<XlaOp> parts;
    OP_REQUIRES_OK(
        context,
        Call(context,
             has_bias ? "__cudnn$fmhaScaleBiasSoftmaxBackward" : "__cudnn$fmhaSoftmaxBackward",
             operands,
             {sizes.Output(sizes.queries), sizes.Output(sizes.keys), sizes.Output(sizes.keys)},
             Config(sizes, BackwardProducts()), IsEmpty(sizes), &parts));
    for (int i = 0; i < 3; ++i) context->SetOutput(i, Ordered(parts[i]));
  }
};

REGISTER_KERNEL_BUILDER(Name("BytePSAttention").Device(tensorflow::DEVICE_GPU_XLA_JIT),
                        ForwardCompiler);
REGISTER_KERNEL_BUILDER(Name("BytePSAttentionGradient").Device(tensorflow::DEVICE_GPU_XLA_JIT),
                        BackwardCompiler);

}  // namespace
}  // namespace byteps
